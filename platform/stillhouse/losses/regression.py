"""Losses that compare a student's vector with its teacher's, text by text.

B  batch    D  student's dimension    E  teacher's dimension
"""

import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import aligning_layer, full_precision, require_pairs, widen


class MSE(nn.Module):
    """Mean squared error to the teacher's vector (DistilCSE, arXiv:2112.05638, eq. 2 and 3).

    ``L = 1/B Σ_i MSE(M s_i, t_i)``, where M stands only where the dimensions differ. The paper sums over the
    batch; the mean keeps the learning rate apart from the batch size.

    Args:
        student_dim: D.
        teacher_dim: E.
        projection: Learn M. None follows the paper: only where the dimensions differ.
        bias: M has a bias.
        identity_init: M starts at the identity where the dimensions agree, else random orthogonal.
        dimensions: ``mean`` over the dimensions (as MSE says) or ``sum`` (the squared distance, E times it).

    Raises:
        BadInput: Dimensions that differ without a projection, or an unknown reduction.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        projection: bool | None = None,
        bias: bool = False,
        identity_init: bool = True,
        dimensions: str = "mean",
    ) -> None:
        super().__init__()
        require(dimensions in ("mean", "sum"), "dimensions in (mean, sum)", dimensions=dimensions)
        self.student_dim, self.teacher_dim, self.dimensions = student_dim, teacher_dim, dimensions
        learnt = student_dim != teacher_dim if projection is None else projection
        self.projection = aligning_layer(
            student_dim, teacher_dim, learnt=learnt, bias=bias, identity_init=identity_init
        )

    def forward(self, student_BD: Tensor, teacher_BE: Tensor) -> Tensor:
        """The mean over the batch.

        Raises:
            BadInput: Shapes that do not fit.
        """
        require_pairs(student_BD, teacher_BE, first_dim=self.student_dim, second_dim=self.teacher_dim)
        with full_precision(student_BD):
            loss = F.mse_loss(self.projection(widen(student_BD)), widen(teacher_BE))
            return loss * self.teacher_dim if self.dimensions == "sum" else loss
