"""Objectives on parallel sentences, columns ``source`` and ``target``: target i translates source i.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022. The contrast couples the batch and is computed over the gathered batch.

B  batch
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from stillhouse.core.distributed import gather
from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.losses.multilingual import MultilingualContrast, MultilingualCrossEntropy
from stillhouse.losses.numerics import why_outside, widen
from stillhouse.losses.regression import MSE
from stillhouse.objectives.objective import Objective


class ParallelRegression(Objective):
    """Regression of both sentences of a pair on the teacher's vectors, eq. 2, 3 and 4: ``mse``.

    If the teacher encodes the source alone, both sentences are fitted to its vector (eq. 2). If it encodes
    the target too, each sentence is fitted to its own vector (eq. 3 and 4).

    Args:
        student_dim: D.
        teacher_dim: E.
        mse: The regression of one sentence. If E differs from D, its projection is learnt together with the
            student and then dropped.
    """

    def __init__(self, *, student_dim: int, teacher_dim: int, mse: Spec[MSE] = spec(MSE)) -> None:
        super().__init__()
        self.mse = mse.build(student_dim=student_dim, teacher_dim=teacher_dim)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``mse``, the sum of both sides."""
        return {"mse": _both_sides(self.mse, student, teacher)}

    def why_outside(self) -> str:
        """Say that the learnt projection, if there is one, is dropped."""
        return why_outside(self.mse.projection)


class ParallelContrast(Objective):
    """Stage 4, eq. 7: ``mse`` (eq. 6) and ``contrast`` (eq. 5, or one of its variants).

    Args:
        student_dim: D.
        teacher_dim: E.
        mse: The regression of one sentence, see `ParallelRegression`.
        contrast: The contrast: eq. 5 by default, eq. 8 or eq. 9; None leaves it out.
        weight: Weight of the contrast; 1 in eq. 7.

    Raises:
        BadInput: The weight is not positive.
    """

    acts_through: ClassVar[Mapping[str, str]] = {"mse": "mse", "contrast": "contrast", "weight": "contrast"}

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        mse: Spec[MSE] = spec(MSE),
        contrast: Spec[MultilingualContrast] | Spec[MultilingualCrossEntropy] | None = spec(
            MultilingualContrast
        ),
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        require(
            weight > 0, "weight of the contrast > 0", weight=weight, remedy="contrast=None leaves it out."
        )
        self.weight = weight
        self.mse = mse.build(student_dim=student_dim, teacher_dim=teacher_dim)
        self.contrast: nn.Module | None = None if contrast is None else contrast.build()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``mse`` and, unless it is left out, ``contrast``."""
        terms = {"mse": _both_sides(self.mse, student, teacher)}
        if self.contrast is not None:
            source_BD, target_BD = (gather(widen(student[c].embedding_BD)) for c in ("source", "target"))
            teacher_BE = gather(widen(teacher["source"].embedding_BD))
            terms["contrast"] = self.weight * self.contrast(source_BD, target_BD, teacher_BE)
        return terms

    def why_outside(self) -> str:
        """Say that the learnt projection, if there is one, is dropped."""
        return why_outside(self.mse.projection)


def _both_sides(mse: MSE, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding]) -> Tensor:
    fitted_to = {column: teacher.get(column, teacher["source"]) for column in ("source", "target")}
    source: Tensor = mse(student["source"].embedding_BD, fitted_to["source"].embedding_BD)
    target: Tensor = mse(student["target"].embedding_BD, fitted_to["target"].embedding_BD)
    return source + target
