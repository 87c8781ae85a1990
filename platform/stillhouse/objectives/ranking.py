"""Objectives on claims with C candidate documents each; no claim depends on another, nothing is gathered."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, ScoringObjective, Terms
from stillhouse.losses.pair_head import Joiner
from stillhouse.losses.softlabel import HardLabelCE, SoftAndHard
from stillhouse.objectives.objective import Objective


class JoinedCandidates(Objective, ScoringObjective):
    """Scores from the vectors of a claim and its candidates, fitted to teacher scores and to labels.

    Columns ``claim`` and ``documents``, flattened row by row; values ``gold`` and, if α > 0, ``scores``.
    The terms are ``soft`` and ``hard`` (eq. 3).

    Args:
        student_dim: D, of claims and documents.
        joiner: Turns the vectors of a claim and a document into a score.
        loss: The losses on scores and labels, with their weight α.
    """

    acts_through: ClassVar[Mapping[str, str]] = {"loss.soft": "soft", "loss.hard": "hard"}

    def __init__(
        self,
        *,
        student_dim: int,
        joiner: Spec[Joiner] = spec(Joiner),
        loss: Spec[SoftAndHard] = spec(SoftAndHard),
    ) -> None:
        super().__init__()
        self.joiner, self.loss = joiner.build(claim_dim=student_dim), loss.build()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``soft`` if α > 0 and ``hard`` if α < 1."""
        values = batch.values
        terms: Terms = self.loss(self.score(student), values.get("scores"), values.get("gold"))
        return terms

    def score(self, student: Mapping[str, Encoding]) -> Tensor:
        """Return the scores of the candidates, (B, C)."""
        claim_BD, flat_MD = student["claim"].embedding_BD, student["documents"].embedding_BD
        scores_BC: Tensor = self.joiner(claim_BD, flat_MD.view(len(claim_BD), -1, flat_MD.shape[-1]))
        return scores_BC


class LabelledCandidates(Objective):
    """Cross-entropy to the labels alone, for a teacher that reads claim and document together: ``hard``.

    Args:
        hard: The loss on the labels.
    """

    def __init__(self, *, hard: Spec[HardLabelCE] = spec(HardLabelCE)) -> None:
        super().__init__()
        self.hard = hard.build()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``hard``."""
        return {"hard": self.hard(student["scores"].embedding_BD, batch.values["gold"])}
