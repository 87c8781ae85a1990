"""CRD: contrastive representation distillation, by a critic that tells pairs from chance.

Tian et al., Contrastive Representation Distillation, ICLR 2020, arXiv:1910.10699, §3.2.

B  batch            D  student's dimension    E  teacher's dimension
M  slots of a bank  T  of them in a tile       C  the critic's dimension
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
from stillhouse.losses.streaming import streamed_sum


class CRD(nn.Module):
    """A critic h must accept the student's vector with its teacher's, and refuse it with the others'.

    ``L = −E_pos[log h(t_i, s_i)] − N E_neg[log(1 − h(t_j, s_i))]``,
    ``h(t, s) = e / (e + N/items)`` with ``e = exp(g_T(t)·g_S(s)/τ) / Z``.

    g_S and g_T are linear and followed by L2 normalisation. N is the number of negatives that an anchor has:
    the other texts of the batch and the bank. So N·E_neg is a plain sum, and an anchor without negatives has
    no loss. The paper draws N = 16 384 from a buffer over all items. Its equation has Z = 1; its code takes Z
    once, from the first batch, so that the mean of e is 1/items and h begins near chance. The code also adds
    the same loss with the sides exchanged, which is not here. The bank holds the teacher's vectors as they
    are, so g_T is always the newest.

    Args:
        student_dim: D.
        teacher_dim: E.
        items: Texts that are trained on: the chance of an item is 1/items (M in the paper).
        dim: Of the space in which the critic compares.
        temperature: τ.
        bias: g_S and g_T have a bias.
        estimated: Z is estimated from the first batch, and kept in the state; else it is 1.
        mask_duplicates: A candidate with the anchor's row id is no negative, and a bank's vector of a text of
            this batch is left out (it stands in the batch). Without it only empty slots are left out.

    Raises:
        BadInput: τ, ``items`` or ``dim`` not positive.
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
        """The mean over the batch.

        Args:
            student_BD: Anchors.
            teacher_BE: Row i is the positive of anchor i, and a negative of the others.
            rows_B: Row ids of the texts; without them no duplicate is known.
            bank_ME: Teacher's vectors of earlier batches, all of them negatives.
            bank_rows_M: Their row ids, negative for an empty slot; needed with a bank.

        Raises:
            BadInput: Fewer than two texts, or shapes that do not fit.
        """
        require_pairs(student_BD, teacher_BE, first_dim=self.student_dim, second_dim=self.teacher_dim)
        require_batch(len(student_BD))
        with full_precision(student_BD):
            asked_BC = self.temperature(unit(self.student_head(widen(student_BD))))
            logits_BB = asked_BC @ unit(self.teacher_head(widen(teacher_BE))).T
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
                total = total + streamed_sum(_refused, bank_ME, hidden_M, asked_BC, chance_B, *head)
            return -total / len(logits_BB)

    def keys(self, teacher_BE: Tensor) -> Tensor:
        """What a bank holds: the vectors as they are, since the critic's own layer is still to come."""
        return widen(teacher_BE)

    def _chance(self, negatives_B: Tensor, dtype: torch.dtype) -> Tensor:
        """``log(Z N/items)``: above it the critic accepts."""
        return negatives_B.clamp(min=1).to(dtype).div(self.items).log() + self.log_constant

    def _estimate(self, logits_BB: Tensor) -> None:
        """Z of the first batch; later ones leave it. The device is not asked, and so not waited for."""
        if self.estimated:
            found = logits_BB.flatten().logsumexp(dim=0) + math.log(self.items / logits_BB.numel())
            self.log_constant.copy_(torch.where(self.log_constant.isnan(), found, self.log_constant))


def _accepted(logits_BB: Tensor, negative_BB: Tensor, chance_B: Tensor, *, alone_B: Tensor) -> Tensor:
    """The sum over the batch of both logarithms; an anchor that is alone has no negative, and no loss."""
    # log h = log σ(x − log(Z N/items)), log(1 − h) = log σ(log(Z N/items) − x): no exponential overflows.
    accepted_B = F.logsigmoid(logits_BB.diagonal() - chance_B).masked_fill(alone_B, 0.0)
    refused_BB = F.logsigmoid(chance_B[:, None] - logits_BB).masked_fill(~negative_BB, 0.0)
    return accepted_B.sum() + refused_BB.sum()


def _refused(keys_TE: Tensor, asked_BC: Tensor, chance_B: Tensor, *head: Tensor) -> Tensor:
    """``Σ_i Σ_j log(1 − h(t_j, s_i))`` over a tile of the bank: none of them is of this batch."""
    keys_TC = unit(F.linear(keys_TE.to(asked_BC.dtype), *head))
    return F.logsigmoid(chance_B[:, None] - asked_BC @ keys_TC.T).sum()
