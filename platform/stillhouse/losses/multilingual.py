"""Contrastive losses between the two languages of parallel sentences, with soft or hard labels.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022, stage 4: eq. 5, 8 and 9. The distillation (eq. 6) is `regression.MSE` on both sides.

B  batch (here: the gathered batch; N in the paper)    D  student's dimension    E  teacher's dimension
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import Temperature, full_precision, require_batch, require_pairs, unit, widen


class MultilingualContrast(nn.Module):
    """The student's similarity of source i and target j is fitted to that of sources i and j (eq. 5).

    ``L = 1/N² Σ_i Σ_j (φ_T(s_i, s_j) − cos(h_S(s_i), h_S(t_j)))²``

    * ``teacher``: φ_T = cos(h_T(s_i), h_T(s_j)), eq. 5.
    * ``same``: φ_T = 1 if h_T(s_i) = h_T(s_j), else 0: the paper's Bool, eq. 8. Equal texts have equal
      vectors, so all translations of a sentence are its positives.

    Args:
        labels: ``teacher`` or ``same``.

    Raises:
        BadInput: The labels are unknown.
    """

    def __init__(self, *, labels: str = "teacher") -> None:
        super().__init__()
        require(labels in ("teacher", "same"), "labels in (teacher, same)", labels=labels)
        self.labels = labels

    def forward(self, source_BD: Tensor, target_BD: Tensor, teacher_BE: Tensor) -> Tensor:
        """Compute the mean over all pairs.

        Args:
            source_BD: The student's vectors of the source sentences.
            target_BD: The student's vectors; row i translates source i.
            teacher_BE: The teacher's vectors of the source sentences.

        Raises:
            BadInput: There are fewer than two pairs, or the shapes do not fit.
        """
        _require_parallel(source_BD, target_BD, teacher_BE)
        with full_precision(source_BD):
            labels_BB = _cosines(teacher_BE) if self.labels == "teacher" else _same(teacher_BE)
            student_BB = unit(widen(source_BD)) @ unit(widen(target_BD)).T
            return F.mse_loss(student_BB, labels_BB.to(student_BB.dtype))


class MultilingualCrossEntropy(nn.Module):
    """A source is assigned to the targets in proportion to the teacher's similarities (CE, eq. 9).

    ``L = −1/N Σ_i Σ_j φ_T(s_i, s_j) log exp(φ_S(s_i, t_j)/τ) / Σ_k exp(φ_S(s_i, t_k)/τ)``, φ = cos.

    The paper prints no indices of φ, also not in the denominator, which is summed over the targets k here,
    and no 1/N; the mean makes the term independent of the batch size, as eq. 5 and 8 are. The weights φ_T are
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
        """Compute the mean over the source sentences; arguments as in `MultilingualContrast`.

        Raises:
            BadInput: There are fewer than two pairs, or the shapes do not fit.
        """
        _require_parallel(source_BD, target_BD, teacher_BE)
        with full_precision(source_BD):
            logits_BB = self.logits(source_BD, target_BD)
            weights_BB = _cosines(teacher_BE).to(logits_BB.dtype)
            return -(weights_BB * F.log_softmax(logits_BB, dim=1)).sum(dim=1).mean()

    def logits(self, source_BD: Tensor, target_BD: Tensor) -> Tensor:
        """Compute the logits of every source over the targets, (B, B), its translation on the diagonal."""
        logits_BB: Tensor = self.temperature(unit(widen(source_BD)) @ unit(widen(target_BD)).T)
        return logits_BB


def _cosines(teacher_BE: Tensor) -> Tensor:
    directions_BE = unit(widen(teacher_BE))
    return directions_BE @ directions_BE.T


def _same(teacher_BE: Tensor) -> Tensor:
    """Tell which rows are equal, (B, B); they are numbered first, as comparing all pairs would take B²E."""
    _, number_B = torch.unique(teacher_BE.detach(), dim=0, return_inverse=True)
    return torch.eq(number_B[:, None], number_B[None, :])


def _require_parallel(source_BD: Tensor, target_BD: Tensor, teacher_BE: Tensor) -> None:
    require_pairs(source_BD, target_BD, second_dim=source_BD.shape[-1])
    require_pairs(source_BD, teacher_BE)
    require_batch(len(source_BD))
