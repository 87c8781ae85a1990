"""Objectives on labelled texts and pairs of texts; no text depends on another.

Only the number of labelled rows is gathered: augmented rows have no label, and their number differs per rank.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from stillhouse.core.distributed import gather, world_size
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, LogitObjective, ScoringObjective, Terms
from stillhouse.losses.heads import UNLABELLED, ClassificationHead, LabelsAndLogits
from stillhouse.objectives.objective import Objective


class Classified(Objective, ScoringObjective, LogitObjective):
    """A classification head that is fitted to labels and, if α < 1, to logits: ``labels`` and ``logits``.

    Columns ``text`` and, for pairs, ``other``; values ``label`` and, if α < 1, ``logits``.

    Args:
        student_dim: D.
        head: The head, with its number of classes.
        loss: The losses on labels and logits, with their weight α.
    """

    few_directions: ClassVar[bool] = True
    """Vectors that only separate the classes are a correct solution, not a collapse."""
    acts_through: ClassVar[Mapping[str, str]] = {"loss.classes": "logits"}

    def __init__(
        self,
        *,
        student_dim: int,
        head: Spec[ClassificationHead],
        loss: Spec[LabelsAndLogits] = spec(LabelsAndLogits, alpha=1.0),
    ) -> None:
        super().__init__()
        self.head, self.loss = head.build(student_dim=student_dim), loss.build()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``labels`` if α > 0 and ``logits`` if α < 1."""
        values = batch.values
        terms: Terms = self.loss(self.logits(student), values.get("label"), values.get("logits"))
        if "labels" in terms and world_size() > 1:
            terms["labels"] = _mean_over_ranks(terms["labels"], values["label"])
        return terms

    def score(self, student: Mapping[str, Encoding]) -> Tensor:
        """Return the probabilities of the classes, (B, C)."""
        return self.head.score(*_sides(student))

    def logits(self, student: Mapping[str, Encoding]) -> Tensor:
        """Return the logits of the classes, (B, C)."""
        logits_BC: Tensor = self.head(*_sides(student))
        return logits_BC


def _mean_over_ranks(mean: Tensor, labels_B: Tensor) -> Tensor:
    """Rescale a mean over the local labelled rows so that DDP's mean over ranks is the global mean."""
    local = (labels_B != UNLABELLED).sum().reshape(1)
    total = gather(local).sum().clamp(min=1)
    return mean * (local[0] * world_size()).to(mean.dtype) / total.to(mean.dtype)


def _sides(student: Mapping[str, Encoding]) -> list[Tensor]:
    return [student[column].embedding_BD for column in ("text", "other") if column in student]
