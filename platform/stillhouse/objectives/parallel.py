"""Objectives on parallel sentences, columns ``source`` and ``target``: row i of the one translates row i.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022. The contrast couples the batch and is computed over the gathered one.

B  batch
"""

from collections.abc import Mapping

from torch import Tensor, nn

from stillhouse.core.distributed import gather
from stillhouse.core.errors import require
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.multilingual import MultilingualContrast, MultilingualCrossEntropy
from stillhouse.losses.numerics import widen
from stillhouse.losses.regression import MSE

CONTRASTS = ("teacher", "same", "ce", "none")


class ParallelRegression(nn.Module):
    """Both sentences of a pair to the teacher's vectors, eq. 2, 3 and 4: ``mse``.

    A teacher of one language says something of the source alone, and both sentences follow that (eq. 2). One
    that says something of the target too is followed sentence by sentence (eq. 3 and 4).

    Args:
        student_dim: D.
        teacher_dim: E; where it differs from D, a projection is learnt beside the student and dropped.
    """

    def __init__(self, *, student_dim: int, teacher_dim: int) -> None:
        super().__init__()
        self.mse = MSE(student_dim=student_dim, teacher_dim=teacher_dim)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``mse``, the sum of both sides."""
        return {"mse": _both_sides(self.mse, student, teacher)}


class ParallelContrast(nn.Module):
    """Stage 4, eq. 7: ``contrast`` (eq. 5, or eq. 8 or 9 in its place) and ``mse`` (eq. 6).

    Args:
        student_dim: D.
        teacher_dim: E; where it differs from D, a projection is learnt beside the student and dropped.
        contrast: ``teacher`` (eq. 5), ``same`` (Bool, eq. 8), ``ce`` (eq. 9), or ``none``.
        temperature: τ of ``ce``.
    """

    def __init__(
        self, *, student_dim: int, teacher_dim: int, contrast: str = "teacher", temperature: float = 0.05
    ) -> None:
        super().__init__()
        require(contrast in CONTRASTS, f"contrast in {CONTRASTS}", contrast=contrast)
        self.mse = MSE(student_dim=student_dim, teacher_dim=teacher_dim)
        self.contrast: nn.Module | None = None
        if contrast == "ce":
            self.contrast = MultilingualCrossEntropy(temperature=temperature)
        elif contrast != "none":
            self.contrast = MultilingualContrast(labels=contrast)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """``mse`` and, unless there is none, ``contrast``."""
        terms = {"mse": _both_sides(self.mse, student, teacher)}
        if self.contrast is not None:
            source_BD, target_BD = (gather(widen(student[c].embedding_BD)) for c in ("source", "target"))
            terms["contrast"] = self.contrast(
                source_BD, target_BD, gather(widen(teacher["source"].embedding_BD))
            )
        return terms


def _both_sides(mse: MSE, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding]) -> Tensor:
    followed = {column: teacher.get(column, teacher["source"]) for column in ("source", "target")}
    source: Tensor = mse(student["source"].embedding_BD, followed["source"].embedding_BD)
    target: Tensor = mse(student["target"].embedding_BD, followed["target"].embedding_BD)
    return source + target
