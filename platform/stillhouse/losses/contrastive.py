"""Contrastive losses: each text of a batch against the others.

B  batch            D  student's dimension    E  teacher's dimension
K  hard negatives   M  slots of a bank        C  candidates that an anchor is compared with
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.memory_bank import among
from stillhouse.losses.numerics import (
    Temperature,
    aligning_layer,
    full_precision,
    require_batch,
    require_pairs,
    unit,
    widen,
)
from stillhouse.losses.tiled_sums import streamed_logsumexp


class InfoNCE(nn.Module):
    """The student's vector of a text must identify the teacher's vector of that text within the batch.

    ``L = −1/B Σ_i log exp(sim(s_i, t_i)/τ) / Σ_j exp(sim(s_i, t_j)/τ)``, j over the batch and a bank.

    * ``bilinear``, sim = sᵀ W t: IBKD (arXiv:2311.05472) eq. 5. The paper prints a denominator that counts
      the positive twice; here is the standard one, which counts it once.
    * ``cosine``, sim = cos(M s, t): DistilCSE (arXiv:2112.05638) eq. 4; eq. 5 with a bank; eq. 6 with M.

    W and M are one linear layer from the student's space into the teacher's.

    Args:
        student_dim: D.
        teacher_dim: E.
        temperature: τ.
        similarity: ``bilinear`` or ``cosine``.
        normalize: L2-normalise s and t *before* W, for ``bilinear``: the paper does not say, but on raw
            vectors τ has no scale and the softmax starts saturated. A cosine always normalises.
        projection: Learn W or M. None follows the papers: W always, M only if the dimensions differ.
        identity_init: Start at the identity if the dimensions agree, else at a random (semi-)orthogonal
            matrix.
        bias: Whether W or M, if there is one, has a bias.
        learnable_scale: Train 1/τ too, starting at ``temperature``.
        mask_duplicates: Do not use a candidate as a negative if it has the anchor's row id, nor a vector of
            the bank if its text is in this batch. Without it, only empty slots are left out.

    Raises:
        BadInput: τ ≤ 0, the similarity is unknown, or switches contradict each other.
    """

    def __init__(
        self,
        *,
        student_dim: int,
        teacher_dim: int,
        temperature: float = 0.1,
        similarity: str = "bilinear",
        normalize: bool = True,
        projection: bool | None = None,
        identity_init: bool = True,
        bias: bool = False,
        learnable_scale: bool = False,
        mask_duplicates: bool = True,
    ) -> None:
        super().__init__()
        require(
            similarity in ("bilinear", "cosine"), "similarity in (bilinear, cosine)", similarity=similarity
        )
        bilinear = similarity == "bilinear"
        require(bilinear or normalize, "normalize = True with similarity = cosine", normalize=normalize)
        learnt = bilinear or student_dim != teacher_dim if projection is None else projection
        require(learnt or not bilinear, "projection = True with similarity = bilinear", projection=projection)
        self.student_dim, self.teacher_dim = student_dim, teacher_dim
        self.similarity, self.normalize, self.mask_duplicates = similarity, normalize, mask_duplicates
        self.temperature = Temperature(temperature, learnable=learnable_scale)
        self.projection = aligning_layer(
            student_dim,
            teacher_dim,
            learnt=learnt,
            bias=bias and (learnt or projection is not None),
            identity_init=identity_init,
        )

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
            bank_ME: `keys` of earlier batches, all of them negatives; products with them are computed in
                their precision.
            bank_rows_M: Row ids of the bank, negative for an empty slot; required with a bank.

        Raises:
            BadInput: There are fewer than two texts, or the shapes do not fit.
        """
        require_pairs(student_BD, teacher_BE, first_dim=self.student_dim, second_dim=self.teacher_dim)
        require_batch(len(student_BD))
        with full_precision(student_BD):
            anchors_BE = self.anchors(widen(student_BD))
            logits_BB = self.temperature(anchors_BE @ self.keys(teacher_BE).T)
            hidden_BB = hidden_candidates(logits_BB, rows_B, mask_duplicates=self.mask_duplicates)
            if bank_ME is None:
                return _pick_diagonal(logits_BB, hidden_BB)
            hidden_M = hidden_slots(bank_ME, bank_rows_M, rows_B, mask_duplicates=self.mask_duplicates)
            bank_B = streamed_logsumexp(self.temperature(anchors_BE), bank_ME, hidden_M)
            return _pick_diagonal(logits_BB, hidden_BB, bank_B)

    def keys(self, teacher_BE: Tensor) -> Tensor:
        """Return the teacher's vectors in the form that anchors are compared with: what a bank holds."""
        return unit(widen(teacher_BE)) if self.normalize else widen(teacher_BE)

    def anchors(self, student_BD: Tensor) -> Tensor:
        """Map the student's vectors to the teacher's space, where an inner product compares them."""
        if self.similarity == "cosine":
            return unit(self.projection(student_BD))
        return torch.as_tensor(self.projection(unit(student_BD) if self.normalize else student_BD))


class SupervisedInfoNCE(nn.Module):
    """A query must identify its passage among those of the batch and its hard negatives (IBKD eq. 10).

    ``L = −1/B Σ_i log exp(s_iᵀs_i⁺/τ) / (Σ_j exp(s_iᵀs_j⁺/τ) + Σ_k exp(s_iᵀs_ik⁻/τ))``

    All vectors are the student's. The paper prints no minus sign, which would maximise the loss.

    Args:
        temperature: τ.
        similarity: ``cosine``, or ``dot`` for the product as printed.
        share_negatives: Compare an anchor also with the hard negatives of the others, as in
            sentence-transformers' MultipleNegativesRankingLoss and in DistilCSE eq. 7; eq. 10 uses the
            anchor's own K only.
        learnable_scale: Train 1/τ too, starting at ``temperature``.
        mask_duplicates: Do not use a candidate as a negative if it is a passage of this query anywhere in
            the batch.

    Raises:
        BadInput: τ ≤ 0, or the similarity is unknown.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        similarity: str = "cosine",
        share_negatives: bool = False,
        learnable_scale: bool = False,
        mask_duplicates: bool = True,
    ) -> None:
        super().__init__()
        require(similarity in ("cosine", "dot"), "similarity in (cosine, dot)", similarity=similarity)
        self.similarity, self.share_negatives = similarity, share_negatives
        self.mask_duplicates = mask_duplicates
        self.temperature = Temperature(temperature, learnable=learnable_scale)

    def forward(
        self,
        query_BD: Tensor,
        positive_BD: Tensor,
        negatives_BKD: Tensor | None = None,
        query_rows_B: Tensor | None = None,
        positive_rows_B: Tensor | None = None,
        negative_rows_BK: Tensor | None = None,
    ) -> Tensor:
        """Compute the mean over the batch.

        Args:
            query_BD: Anchors.
            positive_BD: Row i answers query i.
            negatives_BKD: K hard negatives per query; None for none.
            query_rows_B: Row ids of the queries.
            positive_rows_B: Row ids of the positives; without them, no duplicate is recognised.
            negative_rows_BK: Row ids of the negatives, in the same table as the positives.

        Raises:
            BadInput: There are fewer than two queries, or the shapes do not fit.
        """
        require_pairs(query_BD, positive_BD, second_dim=query_BD.shape[-1])
        require_batch(len(query_BD))
        with full_precision(query_BD):
            if negatives_BKD is not None:
                _require_negatives(query_BD, negatives_BKD, negative_rows_BK)
            logits_BC = self.logits(query_BD, positive_BD, negatives_BKD)
            hidden_BC = torch.zeros_like(logits_BC, dtype=torch.bool)
            if self.mask_duplicates and positive_rows_B is not None:
                answers_BC = self._answers(positive_rows_B, query_rows_B, negative_rows_BK)
                hidden_BC[:, : answers_BC.shape[1]] = answers_BC
            return _pick_diagonal(logits_BC, hidden_BC)

    def logits(self, query_BD: Tensor, positive_BD: Tensor, negatives_BKD: Tensor | None = None) -> Tensor:
        """Compute the logits of every query over its candidates, (B, C), its own passage on the diagonal."""
        query_BD, positive_BD = self._scaled(query_BD), self._scaled(positive_BD)
        similarity_BC = query_BD @ positive_BD.T
        if negatives_BKD is not None:
            to_negatives = self._to_negatives(query_BD, self._scaled(negatives_BKD))
            similarity_BC = torch.cat([similarity_BC, to_negatives], dim=1)
        logits_BC: Tensor = self.temperature(similarity_BC)
        return logits_BC

    def _scaled(self, vectors: Tensor) -> Tensor:
        return unit(widen(vectors)) if self.similarity == "cosine" else widen(vectors)

    def _to_negatives(self, query_BD: Tensor, negatives_BKD: Tensor) -> Tensor:
        if self.share_negatives:
            return query_BD @ negatives_BKD.flatten(0, 1).T
        return torch.einsum("bd,bkd->bk", query_BD, negatives_BKD)

    def _answers(
        self, positive_rows_B: Tensor, query_rows_B: Tensor | None, negative_rows_BK: Tensor | None
    ) -> Tensor:
        """Tell which candidates are a passage of the anchor's query, its own or another one of the batch."""
        batch = len(positive_rows_B)
        same_query_BB = torch.eye(batch, device=positive_rows_B.device)
        if query_rows_B is not None:
            same_query_BB = (query_rows_B[:, None] == query_rows_B[None, :]).float()
        answers_BB = same_query_BB @ (positive_rows_B[:, None] == positive_rows_B[None, :]).float() > 0
        if negative_rows_BK is None:
            return answers_BB
        equal = (positive_rows_B[:, None] == negative_rows_BK.flatten()[None, :]).float()
        negative_answers = same_query_BB @ equal > 0
        if not self.share_negatives:
            own = torch.arange(batch, device=positive_rows_B.device)
            negative_answers = negative_answers.view(batch, batch, -1)[own, own]
        return torch.cat([answers_BB, negative_answers], dim=1)


def hidden_candidates(logits_BB: Tensor, rows_B: Tensor | None, *, mask_duplicates: bool = True) -> Tensor:
    """Tell which texts of the batch cannot be negatives of an anchor: those with its row id.

    Args:
        logits_BB: Similarities; only the shape is read.
        rows_B: Row ids of the texts; without them, no duplicate is recognised.
        mask_duplicates: Whether duplicates are hidden.

    Returns:
        (B, B), bool; the diagonal, where the positives are, may be either.

    Raises:
        BadInput: The number of row ids differs from the number of texts.
    """
    texts, rows = len(logits_BB), None if rows_B is None else tuple(rows_B.shape)
    require(rows in (None, (texts,)), "one row id per text of the batch", rows=rows, texts=texts)
    if not mask_duplicates or rows_B is None:
        return torch.zeros_like(logits_BB, dtype=torch.bool)
    return rows_B[:, None] == rows_B[None, :]


def hidden_slots(
    bank_ME: Tensor, bank_rows_M: Tensor | None, rows_B: Tensor | None, *, mask_duplicates: bool = True
) -> Tensor:
    """Tell which slots of a bank cannot be negatives: empty ones and, by row id, the texts of this batch.

    Args:
        bank_ME: The bank; only the number of slots is read.
        bank_rows_M: Row ids of the bank, negative for an empty slot.
        rows_B: Row ids of the batch; without them, no duplicate is recognised.
        mask_duplicates: Whether texts of this batch are hidden from all anchors, which find them in the
            batch.

    Returns:
        (M,), bool.

    Raises:
        BadInput: The number of row ids differs from the number of slots.
    """
    held = None if bank_rows_M is None else tuple(bank_rows_M.shape)
    require(held == (len(bank_ME),), "one row id per slot of the bank", rows=held, slots=len(bank_ME))
    assert bank_rows_M is not None
    hidden_M = bank_rows_M < 0
    return hidden_M | among(bank_rows_M, rows_B) if mask_duplicates and rows_B is not None else hidden_M


def _require_negatives(query_BD: Tensor, negatives_BKD: Tensor, negative_rows_BK: Tensor | None) -> None:
    batch, dim = query_BD.shape
    require(
        negatives_BKD.ndim == 3 and (negatives_BKD.shape[0], negatives_BKD.shape[2]) == (batch, dim),
        "shape of the negatives = (batch, K, dimension)",
        negatives=tuple(negatives_BKD.shape),
        queries=tuple(query_BD.shape),
    )
    require(
        negative_rows_BK is None or negative_rows_BK.shape == negatives_BKD.shape[:2],
        "one row id per negative",
        negatives=tuple(negatives_BKD.shape),
        rows=None if negative_rows_BK is None else tuple(negative_rows_BK.shape),
    )


def _pick_diagonal(logits_BC: Tensor, hidden_BC: Tensor, bank_B: Tensor | None = None) -> Tensor:
    """Compute the cross-entropy with candidate i as the target of anchor i.

    Hidden candidates do not count, a positive always does. ``bank_B`` is the log-sum-exp of the logits of
    candidates that are not in the matrix.
    """
    positives_B = torch.arange(len(logits_BC), device=logits_BC.device)
    hidden_BC = hidden_BC.index_put((positives_B, positives_B), hidden_BC.new_tensor(False))
    shown_BC = logits_BC.masked_fill(hidden_BC, float("-inf"))
    if bank_B is None:
        return F.cross_entropy(shown_BC, positives_B)
    return (torch.logaddexp(shown_BC.logsumexp(dim=1), bank_B) - shown_BC.diagonal()).mean()
