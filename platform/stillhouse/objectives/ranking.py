"""Objectives on claims with C candidate documents each; no claim depends on another, nothing is gathered."""

from collections.abc import Mapping

from torch import Tensor, nn

from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.pair_head import Joiner
from stillhouse.losses.softlabel import HardLabelCE, SoftAndHard


class JoinedCandidates(nn.Module):
    """Scores from a claim's vector and its candidates', fitted to a teacher's scores and to labels.

    Columns ``claim`` and ``documents``, flattened row by row; values ``gold`` and, where α > 0, ``scores``.
    The terms are ``soft`` and ``hard`` (eq. 3).

    Args:
        student_dim: D, of both.
        joiner: ``bilinear``, ``features`` or ``concat``.
        soft_loss: ``ce`` or ``mse``.
        alpha: α.
        temperature: T.
        compared: What the squared error compares.
        gold: What several relevant candidates of a claim weigh.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        joiner: str = "bilinear",
        soft_loss: str = "ce",
        alpha: float = 0.5,
        temperature: float = 3.0,
        compared: str = "probabilities",
        gold: str = "sum",
    ) -> None:
        super().__init__()
        self.joiner = Joiner(claim_dim=student_dim, kind=joiner)
        self.loss = SoftAndHard(
            alpha=alpha, soft=soft_loss, temperature=temperature, compared=compared, gold=gold
        )

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``soft`` where α > 0, ``hard`` where α < 1."""
        return self.loss.terms(self._scores(student), batch.values.get("scores"), batch.values.get("gold"))

    def score(self, student: Mapping[str, Encoding]) -> Tensor:
        """Scores of the candidates, (B, C)."""
        return self._scores(student)

    def _scores(self, student: Mapping[str, Encoding]) -> Tensor:
        claim_BD, flat_MD = student["claim"].embedding_BD, student["documents"].embedding_BD
        scores_BC: Tensor = self.joiner(claim_BD, flat_MD.view(len(claim_BD), -1, flat_MD.shape[-1]))
        return scores_BC


class LabelledCandidates(nn.Module):
    """The labels alone, for a teacher that reads claim and document together and scores by itself.

    Args:
        gold: What several relevant candidates of a claim weigh.
    """

    def __init__(self, *, gold: str = "sum") -> None:
        super().__init__()
        self.hard = HardLabelCE(gold=gold)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``hard``."""
        return {"hard": self.hard(student["scores"].embedding_BD, batch.values["gold"])}
