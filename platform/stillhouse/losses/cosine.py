"""Losses on cosines: between the vectors of student and teacher, and between the two texts of a pair.

SRA: Wu et al., ACL 2020, "Towards Non-task-specific Distillation of BERT via Sentence Representation
Approximation".

B  batch    D  student's dimension    E  teacher's dimension
"""

from torch import Tensor, nn

from stillhouse.losses.numerics import full_precision, require_pairs, unit, widen


class CosineDistance(nn.Module):
    """Half the cosine distance to the teacher's vector (SRA, eq. 1), in [0, 1].

    ``L = 1/B Σ_i ½ (1 − cos(t_i, s_i))``. The lengths of the vectors do not matter. A zero vector
    gives ½.
    """

    def forward(self, student_BD: Tensor, teacher_BD: Tensor) -> Tensor:
        """Compute the mean over the batch.

        Raises:
            BadInput: The shapes do not fit.
        """
        require_pairs(student_BD, teacher_BD, second_dim=student_BD.shape[-1])
        with full_precision(student_BD):
            return (0.5 * (1 - _cosines(student_BD, teacher_BD))).mean()


class PairCosineMSE(nn.Module):
    """The cosine of a pair is fitted to the teacher's: BiLSTM_KD in SRA's Table 5, without labels.

    ``L = 1/B Σ_i (cos(s_i, s'_i) − cos(t_i, t'_i))²``. The paper says "fitting the cosine similarity score of
    the sentence pair directly given by the pre-trained BERT"; the square is that of its BiLSTM_KD. The two
    dimensions need not agree.
    """

    def forward(
        self, student_BD: Tensor, student_other_BD: Tensor, teacher_BE: Tensor, teacher_other_BE: Tensor
    ) -> Tensor:
        """Compute the mean over the batch.

        Args:
            student_BD: Student's vectors of the first texts.
            student_other_BD: Student's vectors of the second texts.
            teacher_BE: Teacher's vectors of the first texts.
            teacher_other_BE: Teacher's vectors of the second texts.

        Raises:
            BadInput: The shapes do not fit.
        """
        require_pairs(student_BD, student_other_BD, second_dim=student_BD.shape[-1])
        require_pairs(teacher_BE, teacher_other_BE, second_dim=teacher_BE.shape[-1])
        require_pairs(student_BD, teacher_BE)
        with full_precision(student_BD):
            target_B = _cosines(teacher_BE, teacher_other_BE)
            return (_cosines(student_BD, student_other_BD) - target_B).square().mean()


def _cosines(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    return (unit(widen(first_BD)) * unit(widen(second_BD))).sum(dim=-1)
