"""Contrast between the two languages of parallel sentences, soft or hard.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022, stage 4: eq. 5, 8 and 9. The distillation beside it (eq. 6) is `regression.MSE` on both sides.

B  batch (here: the gathered one; N in the paper)    D  student's dimension    E  teacher's dimension
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import Temperature, full_precision, require_batch, require_pairs, unit, widen


class MultilingualContrast(nn.Module):
    """How like source i and target j are to the student follows how like source i and source j are (eq. 5).

    ``L = 1/N² Σ_i Σ_j (φ_T(s_i, s_j) − cos(h_S(s_i), h_S(t_j)))²``

    * ``teacher``: φ_T = cos(h_T(s_i), h_T(s_j)), eq. 5.
    * ``same``: φ_T = 1 where h_T(s_i) = h_T(s_j), else 0: the paper's Bool, eq. 8. Equal texts have equal
      vectors, so a sentence with several translations has them all for its positives.

    Args:
        labels: ``teacher`` or ``same``.

    Raises:
        BadInput: Unknown labels.
    """

    def __init__(self, *, labels: str = "teacher") -> None:
        super().__init__()
        require(labels in ("teacher", "same"), "labels in (teacher, same)", labels=labels)
        self.labels = labels

    def forward(self, source_BD: Tensor, target_BD: Tensor, teacher_BE: Tensor) -> Tensor:
        """The mean over all pairs.

        Args:
            source_BD: The student's vectors of the source sentences.
            target_BD: The student's vectors; row i translates source i.
            teacher_BE: The teacher's vectors of the source sentences.

        Raises:
            BadInput: Fewer than two pairs, or shapes that do not fit.
        """
        _require_parallel(source_BD, target_BD, teacher_BE)
        with full_precision(source_BD):
            labels_BB = _cosines(teacher_BE) if self.labels == "teacher" else _same(teacher_BE)
            student_BB = unit(widen(source_BD)) @ unit(widen(target_BD)).T
            return F.mse_loss(student_BB, labels_BB.to(student_BB.dtype))


class MultilingualCrossEntropy(nn.Module):
    """A source finds the targets as far as the teacher finds them like it (the paper's CE, eq. 9).

    ``L = −1/N Σ_i Σ_j φ_T(s_i, s_j) log exp(φ_S(s_i, t_j)/τ) / Σ_k exp(φ_S(s_i, t_k)/τ)``, φ = cos.

    The print leaves the indices of φ out, also in the denominator, which is summed over the targets k here,
    and has no 1/N; the mean keeps the term apart from the batch size, as eq. 5 and 8 do. The weights φ_T are
    the plain cosines: they do not add up to 1, and a negative one pushes away.

    Args:
        temperature: τ.

    Raises:
        BadInput: τ ≤ 0.
    """

    def __init__(self, *, temperature: float = 0.05) -> None:
        super().__init__()
        self.temperature = Temperature(temperature)

    def forward(self, source_BD: Tensor, target_BD: Tensor, teacher_BE: Tensor) -> Tensor:
        """The mean over the source sentences; arguments as in `MultilingualContrast`.

        Raises:
            BadInput: Fewer than two pairs, or shapes that do not fit.
        """
        _require_parallel(source_BD, target_BD, teacher_BE)
        with full_precision(source_BD):
            logits_BB = self.temperature(unit(widen(source_BD)) @ unit(widen(target_BD)).T)
            weights_BB = _cosines(teacher_BE).to(logits_BB.dtype)
            return -(weights_BB * F.log_softmax(logits_BB, dim=1)).sum(dim=1).mean()


def _cosines(teacher_BE: Tensor) -> Tensor:
    directions_BE = unit(widen(teacher_BE))
    return directions_BE @ directions_BE.T


def _same(teacher_BE: Tensor) -> Tensor:
    """1 where two rows are equal, else 0; numbered first, since comparing all pairs would take B²E."""
    _, number_B = torch.unique(teacher_BE.detach(), dim=0, return_inverse=True)
    return torch.eq(number_B[:, None], number_B[None, :])


def _require_parallel(source_BD: Tensor, target_BD: Tensor, teacher_BE: Tensor) -> None:
    require_pairs(source_BD, target_BD, second_dim=source_BD.shape[-1])
    require_pairs(source_BD, teacher_BE)
    require_batch(len(source_BD))
