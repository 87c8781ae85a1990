"""Objectives on labelled texts and pairs of texts; no text depends on another.

Nothing is gathered but how many rows have a label: augmented rows have none, and ranks differ in them.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from stillhouse.core.distributed import gather, world_size
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.heads import UNLABELLED, ClassificationHead, LabelsAndLogits


class Classified(nn.Module):
    """A classification head, fitted to labels and, where α < 1, to logits: ``labels`` and ``logits``.

    Columns ``text`` and, for pairs, ``other``; values ``label`` and, where α < 1, ``logits``.

    Args:
        student_dim: D.
        classes: C.
        pair: Whether the texts come in pairs.
        hidden: Units of the head's hidden layer.
        dropout: Of the head.
        alpha: α, the weight of the labels.
    """

    few_directions: ClassVar[bool] = True
    """Vectors that tell the classes apart, and nothing else, are what it asks for."""

    def __init__(
        self,
        *,
        student_dim: int,
        classes: int,
        pair: bool,
        hidden: int = 256,
        dropout: float = 0.0,
        alpha: float = 1.0,
    ) -> None:
        super().__init__()
        self.head = ClassificationHead(
            student_dim=student_dim, classes=classes, pair=pair, hidden=hidden, dropout=dropout
        )
        self.loss = LabelsAndLogits(alpha=alpha)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``labels`` where α > 0, ``logits`` where α < 1."""
        values = batch.values
        terms: Terms = self.loss(self.logits(student), values.get("label"), values.get("logits"))
        if "labels" in terms and world_size() > 1:
            terms["labels"] = _of_all_ranks(terms["labels"], values["label"])
        return terms

    def score(self, student: Mapping[str, Encoding]) -> Tensor:
        """Probabilities of the classes, (B, C)."""
        return self.head.score(*_sides(student))

    def logits(self, student: Mapping[str, Encoding]) -> Tensor:
        """What the probabilities are the softmax of, (B, C)."""
        logits_BC: Tensor = self.head(*_sides(student))
        return logits_BC


def _of_all_ranks(mean: Tensor, labels_B: Tensor) -> Tensor:
    """A mean over the labelled rows here, such that DDP's mean over ranks is that over all labelled rows."""
    here = (labels_B != UNLABELLED).sum().reshape(1)
    everywhere = gather(here).sum().clamp(min=1)
    return mean * (here[0] * world_size()).to(mean.dtype) / everywhere.to(mean.dtype)


def _sides(student: Mapping[str, Encoding]) -> list[Tensor]:
    return [student[column].embedding_BD for column in ("text", "other") if column in student]
