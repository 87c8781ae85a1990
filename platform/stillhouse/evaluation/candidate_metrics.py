"""Metrics of ranking the C candidates of every claim.

Shakeri et al., Knowledge Distillation in Document Retrieval, §2.2. With c_i the number of
relevant documents of claim i, including those outside the candidates, and r_ij = 1 if the document at rank j
is relevant:

    recall_macro(k) = 1/N Σ_i Σ_{j≤k} r_ij / c_i        recall_micro(k) = Σ_i Σ_{j≤k} r_ij / Σ_i c_i

The paper prints R(1) without saying which of the two it is, and no formula for DCG. They are read here as
``accuracy@1``, the share of the claims with a relevant document at rank 1, and ``dcg``,
1/N Σ_i Σ_j r_ij / log2(j + 1). The paper's figures are × 100.

Q  claims    C  candidates per claim
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.evaluation.metrics import Judged, Values, dcg, ndcg, recall, reciprocal_rank
from stillhouse.evaluation.search.exact import require_finite

DEPTHS = (1, 3, 5)
"""Depths of the paper's recalls."""


def judge_candidates(
    scores_QC: FloatArray, labels_QC: npt.NDArray[np.generic], gold_counts_Q: IntArray
) -> Judged:
    """Rank candidates by score. Ties count against the model: among equal scores, irrelevant ones come first.

    A model that gives all candidates the same score therefore finds none, whatever their order. Breaking ties
    by position would flatter it, because the nearest documents, and in training the relevant ones, have
    typical positions.

    Args:
        scores_QC: Higher is better.
        labels_QC: Nonzero for a relevant candidate.
        gold_counts_Q: c_i, at least 1 and at least the number of relevant candidates of the claim.

    Raises:
        BadInput: If shapes do not match, a score is not finite, or a count is impossible.
    """
    shape = scores_QC.shape
    if len(shape) != 2 or labels_QC.shape != shape or gold_counts_Q.shape != shape[:1] or min(shape) == 0:
        raise BadInput(
            f"scores and labels must be (Q, C) and gold counts (Q,), but have the shapes {shape}, "
            f"{labels_QC.shape} and {gold_counts_Q.shape}."
        )
    require_finite(scores_QC, "scores")
    relevant_QC = labels_QC != 0
    found_Q = relevant_QC.sum(axis=1)
    possible = (gold_counts_Q >= 1) & (gold_counts_Q >= found_Q)
    if not possible.all():
        raise BadInput(
            "every claim must have a relevant document, and at most as many relevant candidates, but "
            f"{int((~possible).sum())} claims do not; the first is {int((~possible).argmax())}."
        )
    order_QC = np.lexsort((relevant_QC, -np.asarray(scores_QC, np.float64)), axis=1)
    gains_QC = np.take_along_axis(relevant_QC, order_QC, axis=1).astype(np.float64)
    ideal_QR = np.arange(int(gold_counts_Q.max())) < gold_counts_Q[:, None]
    return Judged(gains_QC, ideal_QR.astype(np.float64))


def recall_micro(judged: Judged, k: int) -> Values:
    """Compute values per claim whose mean is the share of all relevant documents that are in a top k."""
    found_Q = (judged.gains_QK[:, :k] > 0).sum(axis=1)
    return np.asarray(found_Q / judged.relevant_Q.mean())


def accuracy(judged: Judged, k: int) -> Values:
    """Return 1 for a claim with a relevant document in the top k, else 0."""
    return np.asarray((judged.gains_QK[:, :k] > 0).any(axis=1), np.float64)


def candidate_values(judged: Judged, *, depths: Sequence[int] = DEPTHS) -> dict[str, Values]:
    """Compute the paper's metrics and the usual ones per claim, within the C candidates.

    Returns:
        ``accuracy@1``, both recalls at every depth up to C, ``dcg``, ``mrr@C`` and ``ndcg@C``; a figure is
        the mean over the claims. Recall and nDCG of a perfect order are below 1 if relevant documents are
        missing among the candidates.
    """
    width = judged.gains_QK.shape[1]
    values = {"accuracy@1": accuracy(judged, 1)}
    for k in (k for k in depths if k <= width):
        values[f"recall_micro@{k}"] = recall_micro(judged, k)
        values[f"recall_macro@{k}"] = recall(judged, k)
    return values | {
        "dcg": dcg(judged, width),
        f"mrr@{width}": reciprocal_rank(judged, width),
        f"ndcg@{width}": ndcg(judged, width),
    }


def candidate_figures(judged: Judged, prefix: str, *, depths: Sequence[int] = DEPTHS) -> dict[str, float]:
    """Compute the means of `candidate_values`, named with a prefix: ``fever_accuracy@1``, …."""
    values = candidate_values(judged, depths=depths)
    return {f"{prefix}_{name}": float(each.mean()) for name, each in values.items()}
