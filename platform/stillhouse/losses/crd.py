"""CRD: contrastive representation distillation, with a critic that tells true pairs from random ones.

Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699, §3.2.

B  batch            D  student's dimension    E  teacher's dimension
M  slots of a bank  T  slots in a tile         C  the critic's dimension
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.contrastive import hidden_candidates, hidden_slots
from stillhouse.losses.numerics import (
    Temperature,
    aligning_layer,
    full_precision,
    require_batch,
    require_pairs,
    unit,
    widen,
)
from stillhouse.losses.tiled_sums import streamed_sum


class CRD(nn.Module):
    """A critic h must accept the student's vector with the teacher's of that text, and reject it with others.

    ``L = −E_pos[log h(t_i, s_i)] − N E_neg[log(1 − h(t_j, s_i))]``,
    ``h(t, s) = e / (e + N/items)`` with ``e = exp(g_T(t)·g_S(s)/τ) / Z``.

    g_S and g_T are linear and followed by L2 normalisation. N is the number of negatives that an anchor has:
    the other texts of the batch and the bank. N·E_neg is thus a plain sum, and an anchor without negatives
    has no loss. The paper draws N = 16 384 negatives from a buffer over all items. Its equation has Z = 1;
    its code estimates Z once, from the first batch, so that the mean of e is 1/items and h starts near
    chance. The code also adds the same loss with the sides exchanged, which is left out here. The bank holds
    the teacher's vectors before g_T, so that the newest g_T is always used.

    Args:
        student_dim: D.
        teacher_dim: E.
        items: Number of texts that are trained on (M in the paper): a random item is right with probability
            1/items.
        dim: Dimension of the space in which the critic compares.
        temperature: τ.
        bias: Whether g_S and g_T have a bias.
        estimated: Whether Z is estimated from the first batch, and kept in the state; otherwise Z = 1.
        mask_duplicates: Do not use a candidate as a negative if it has the anchor's row id, nor a vector of
            the bank if its text is in this batch. Without it, only empty slots are left out.

    Raises:
        BadInput: τ, ``items`` or ``dim`` is not positive.
    """

    log_constant: Tensor

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        items: int,
        dim: int = 128,
        temperature: float = 0.07,
        bias: bool = True,
        estimated: bool = False,
        mask_duplicates: bool = True,
    ) -> None:
        super().__init__()
        require(items >= 1, "items >= 1", items=items)
        require(dim >= 1, "dim >= 1", dim=dim)
        self.student_dim, self.teacher_dim, self.items = student_dim, teacher_dim, items
        self.mask_duplicates, self.estimated = mask_duplicates, estimated
        self.temperature = Temperature(temperature)
        self.register_buffer("log_constant", torch.tensor(math.nan if estimated else 0.0))
        self.student_head = aligning_layer(student_dim, dim, learnt=True, bias=bias, identity_init=False)
        self.teacher_head = aligning_layer(teacher_dim, dim, learnt=True, bias=bias, identity_init=False)

    def forward(
        self,
        student_BD: Tensor,
        teacher_BE: Tensor,
        rows_B: Tensor | None = None,
        bank_ME: Tensor | None = None,
        bank_rows_M: Tensor | None = None,
    ) -> Tensor:
        """Compute the mean over the batch.

        Args:
            student_BD: Anchors.
            teacher_BE: Row i is the positive of anchor i and a negative of the others.
            rows_B: Row ids of the texts; without them, no duplicate is recognised.
            bank_ME: Teacher's vectors of earlier batches, all of them negatives.
            bank_rows_M: Row ids of the bank, negative for an empty slot; required with a bank.

        Raises:
            BadInput: There are fewer than two texts, or the shapes do not fit.
        """
        require_pairs(student_BD, teacher_BE, first_dim=self.student_dim, second_dim=self.teacher_dim)
        require_batch(len(student_BD))
        with full_precision(student_BD):
            anchors_BC = self.temperature(unit(self.student_head(widen(student_BD))))
            logits_BB = anchors_BC @ unit(self.teacher_head(widen(teacher_BE))).T
            self._estimate(logits_BB.detach())
            masked = {"mask_duplicates": self.mask_duplicates}
            negative_BB = ~hidden_candidates(logits_BB, rows_B, **masked)
            negative_BB.fill_diagonal_(False)
            negatives_B = negative_BB.sum(dim=1)
            if bank_ME is not None:
                hidden_M = hidden_slots(bank_ME, bank_rows_M, rows_B, **masked)
                negatives_B = negatives_B + (~hidden_M).sum()
            chance_B = self._chance(negatives_B, logits_BB.dtype)
            total = _accepted(logits_BB, negative_BB, chance_B, alone_B=negatives_B == 0)
            if bank_ME is not None:
                head = tuple(self.teacher_head.parameters())
                total = total + streamed_sum(_refused, bank_ME, hidden_M, anchors_BC, chance_B, *head)
            return -total / len(logits_BB)

    def keys(self, teacher_BE: Tensor) -> Tensor:
        """Return what a bank holds: the teacher's vectors before the critic's own layer."""
        return widen(teacher_BE)

    def _chance(self, negatives_B: Tensor, dtype: torch.dtype) -> Tensor:
        """Compute ``log(Z N/items)``, above which the critic accepts."""
        return negatives_B.clamp(min=1).to(dtype).div(self.items).log() + self.log_constant

    def _estimate(self, logits_BB: Tensor) -> None:
        """Estimate Z from the first batch only, without a host-device synchronisation."""
        if self.estimated:
            estimate = logits_BB.flatten().logsumexp(dim=0) + math.log(self.items / logits_BB.numel())
            self.log_constant.copy_(torch.where(self.log_constant.isnan(), estimate, self.log_constant))


def _accepted(logits_BB: Tensor, negative_BB: Tensor, chance_B: Tensor, *, alone_B: Tensor) -> Tensor:
    """Sum both logarithms over the batch; an anchor that is alone has no negative, and no loss."""
    # log h = log σ(x − log(Z N/items)), log(1 − h) = log σ(log(Z N/items) − x): no exponential overflows.
    accepted_B = F.logsigmoid(logits_BB.diagonal() - chance_B).masked_fill(alone_B, 0.0)
    refused_BB = F.logsigmoid(chance_B[:, None] - logits_BB).masked_fill(~negative_BB, 0.0)
    return accepted_B.sum() + refused_BB.sum()


def _refused(keys_TE: Tensor, anchors_BC: Tensor, chance_B: Tensor, *head: Tensor) -> Tensor:
    """Sum ``log(1 − h(t_j, s_i))`` over anchors i and keys j of a tile, none of them a text of the batch."""
    keys_TC = unit(F.linear(keys_TE.to(anchors_BC.dtype), *head))
    return F.logsigmoid(chance_B[:, None] - anchors_BC @ keys_TC.T).sum()
