"""Losses on the cosines between the texts of a batch: those of the teacher, or none at all.

B  batch    D  student's dimension    E  teacher's dimension
"""

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import full_precision, require_batch, require_pairs, unit, widen


class SimilarityMatrix(nn.Module):
    """The batch's matrix of cosines is fitted to the teacher's.

    ``L = 1/(B(B−1)) Σ_{i≠j} (cos(s_i, s_j) − cos(t_i, t_j))²``. Relations between texts are compared
    rather than vectors, as in RKD (Park et al., CVPR 2019, arXiv:1904.05068) and in similarity-preserving
    distillation (Tung and Mori, ICCV 2019, arXiv:1907.09682); the square of plain cosines is ours. The
    dimensions need not agree, and neither lengths nor rotations of the vectors matter.
    """

    def forward(self, student_BD: Tensor, teacher_BE: Tensor) -> Tensor:
        """Compute the mean over the ordered pairs of different places in the batch.

        Raises:
            BadInput: There are fewer than two texts, or the shapes do not fit.
        """
        require_pairs(student_BD, teacher_BE)
        require_batch(len(student_BD))
        with full_precision(student_BD):
            gap_BB = _cosine_matrix(student_BD) - _cosine_matrix(teacher_BE)
            gap_BB = gap_BB - torch.diag(gap_BB.diagonal())
            return gap_BB.square().sum() / (len(gap_BB) * (len(gap_BB) - 1))


class SpreadOut(nn.Module):
    """Global orthogonal regularisation: vectors of different texts are as if drawn evenly from the sphere.

    Zhang et al., Learning Spread-out Local Feature Descriptors, ICCV 2017, arXiv:1708.06320. Over the pairs
    of different texts, the cosines of such vectors have the mean 0 and the second moment 1/D, hence
    ``L = M₁² + max(0, M₂ − 1/D)`` with the mean M₁ and the second moment M₂ of the batch's cosines. The
    paper draws random non-matching pairs; here all those of the batch count.
    """

    def forward(self, student_BD: Tensor, rows_B: Tensor | None = None) -> Tensor:
        """Compute the regulariser of a batch; 0 if all its texts are the same.

        Args:
            student_BD: Student's vectors.
            rows_B: Row ids: two places with the same text are no pair. Without them, all texts are different.

        Raises:
            BadInput: There are fewer than two texts, or not one row id per text.
        """
        require(
            student_BD.ndim == 2, "shape of the vectors = (batch, dimension)", shape=tuple(student_BD.shape)
        )
        require_batch(len(student_BD))
        rows_B = torch.arange(len(student_BD), device=student_BD.device) if rows_B is None else rows_B
        require(
            rows_B.shape == student_BD.shape[:1],
            "one row id per text",
            rows=tuple(rows_B.shape),
            vectors=tuple(student_BD.shape),
        )
        with full_precision(student_BD):
            different_BB = rows_B[:, None] != rows_B[None, :]
            cosines_BB = _cosine_matrix(student_BD) * different_BB
            pairs = different_BB.sum().clamp(min=1)
            mean, second_moment = cosines_BB.sum() / pairs, cosines_BB.square().sum() / pairs
            return mean.square() + torch.relu(second_moment - 1 / student_BD.shape[1])


def _cosine_matrix(vectors_BD: Tensor) -> Tensor:
    unit_BD = unit(widen(vectors_BD))
    return unit_BD @ unit_BD.T
