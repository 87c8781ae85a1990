"""Losses that compare the vectors of student and teacher, text by text.

B  batch    D  student's dimension    E  teacher's dimension
"""

import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import aligning_layer, full_precision, require_pairs, unit, widen


class MSE(nn.Module):
    """Mean squared error to the teacher's vector (DistilCSE, arXiv:2112.05638, eq. 2 and 3).

    ``L = 1/B Σ_i MSE(M s_i, t_i)``, with M only if the dimensions differ. The paper sums over the batch; the
    mean makes the learning rate independent of the batch size.

    A student whose vectors have length 1 cannot reach a teacher whose vectors have another, and the loss then
    has a lower bound above 0: with ``normalize`` both sides have length 1.

    Args:
        student_dim: D.
        teacher_dim: E.
        projection: Learn M. None follows the paper: only if the dimensions differ.
        bias: Whether M, if there is one, has a bias.
        identity_init: Start M at the identity if the dimensions agree, else at a random orthogonal matrix.
        dimensions: ``mean`` over the dimensions (as the name MSE says), or ``sum`` (the squared distance, E
            times the mean).
        normalize: Compare M s / ‖M s‖ with t / ‖t‖; otherwise both are taken as they are.

    Raises:
        BadInput: The dimensions differ without a projection, or the reduction is unknown.
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
        normalize: bool = False,
    ) -> None:
        super().__init__()
        require(dimensions in ("mean", "sum"), "dimensions in (mean, sum)", dimensions=dimensions)
        self.student_dim, self.teacher_dim, self.dimensions = student_dim, teacher_dim, dimensions
        self.normalize = normalize
        learnt = student_dim != teacher_dim if projection is None else projection
        self.projection = aligning_layer(
            student_dim,
            teacher_dim,
            learnt=learnt,
            bias=bias and (learnt or projection is not None),
            identity_init=identity_init,
        )

    def forward(self, student_BD: Tensor, teacher_BE: Tensor) -> Tensor:
        """Compute the mean over the batch.

        Raises:
            BadInput: The shapes do not fit.
        """
        require_pairs(student_BD, teacher_BE, first_dim=self.student_dim, second_dim=self.teacher_dim)
        with full_precision(student_BD):
            ours_BE, theirs_BE = self.projection(widen(student_BD)), widen(teacher_BE)
            if self.normalize:
                ours_BE, theirs_BE = unit(ours_BE), unit(theirs_BE)
            loss = F.mse_loss(ours_BE, theirs_BE)
            return loss * self.teacher_dim if self.dimensions == "sum" else loss
