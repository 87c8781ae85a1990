"""How well the scores of C candidates a claim put the relevant ones first.

Shakeri et al., Knowledge Distillation in Document Retrieval, §2.2. With c_i the relevant documents of claim
i, those outside the candidates included, and r_ij = 1 where the document at rank j is relevant:

    recall_macro(k) = 1/N Σ_i Σ_{j≤k} r_ij / c_i        recall_micro(k) = Σ_i Σ_{j≤k} r_ij / Σ_i c_i

R(1) is printed as neither of the two, and for DCG no formula: ``accuracy@1``, the share of the claims with a
relevant document on top, and ``dcg``, 1/N Σ_i Σ_j r_ij / log2(j + 1), are the readings here. The paper's
figures are × 100.

Q  claims    C  candidates a claim
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import require
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.evaluation.metrics import Judged, Values, dcg, ndcg, recall, reciprocal_rank
from stillhouse.evaluation.search.exact import finite


def judge_candidates(
    scores_QC: FloatArray, labels_QC: npt.NDArray[np.generic], gold_counts_Q: IntArray
) -> Judged:
    """Rank candidates by score. Equal scores count against the model: of those the irrelevant come first.

    So a model that scores all candidates alike finds none, whatever their order; an order by place would
    flatter it, since the nearest documents, and in training the relevant ones, have places of their own.

    Args:
        scores_QC: Higher is better.
        labels_QC: Not 0 for a relevant candidate.
        gold_counts_Q: c_i, at least 1 and at least the relevant candidates of the claim.

    Raises:
        BadInput: Shapes that do not fit, a score that is not finite, or a count that cannot be.
    """
    shape = scores_QC.shape
    require(
        len(shape) == 2 and labels_QC.shape == shape and gold_counts_Q.shape == shape[:1] and min(shape) > 0,
        "scores and labels are (Q, C), gold counts (Q,)",
        scores=shape,
        labels=labels_QC.shape,
        gold_counts=gold_counts_Q.shape,
    )
    finite(scores_QC, "scores")
    relevant_QC = labels_QC != 0
    found_Q = relevant_QC.sum(axis=1)
    possible = (gold_counts_Q >= 1) & (gold_counts_Q >= found_Q)
    require(
        bool(possible.all()),
        "a claim has a relevant document, and no more relevant candidates than documents",
        first_claim=int((~possible).argmax()),
        claims=int((~possible).sum()),
    )
    order_QC = np.lexsort((relevant_QC, -np.asarray(scores_QC, np.float64)), axis=1)
    gains_QC = np.take_along_axis(relevant_QC, order_QC, axis=1).astype(np.float64)
    ideal_QR = np.arange(int(gold_counts_Q.max())) < gold_counts_Q[:, None]
    return Judged(gains_QC, ideal_QR.astype(np.float64))


def recall_micro(judged: Judged, k: int) -> Values:
    """Of each claim; the mean is the share of all claims' relevant documents that are in a top k."""
    found_Q = (judged.gains_QK[:, :k] > 0).sum(axis=1)
    return np.asarray(found_Q / judged.relevant_Q.mean())


def accuracy(judged: Judged, k: int) -> Values:
    """1 for a claim with a relevant document in the top k, else 0."""
    return np.asarray((judged.gains_QK[:, :k] > 0).any(axis=1), np.float64)


def candidate_values(judged: Judged, *, depths: Sequence[int] = (1, 3, 5)) -> dict[str, Values]:
    """The paper's figures and the usual ones beside them, all within the C candidates, claim by claim.

    Args:
        judged: From `judge_candidates`.
        depths: k of the recalls.

    Returns:
        ``accuracy@1``, both recalls at every depth, ``dcg``, ``mrr@C`` and ``ndcg@C``; each figure is the
        mean over the claims. A perfect order falls short of 1 in recall and nDCG where relevant documents
        are not among the candidates.

    Raises:
        BadInput: A depth beyond the candidates.
    """
    width = judged.gains_QK.shape[1]
    require(all(1 <= k <= width for k in depths), "1 <= depth <= candidates", depths=depths, candidates=width)
    values = {"accuracy@1": accuracy(judged, 1)}
    for k in depths:
        values[f"recall_micro@{k}"] = recall_micro(judged, k)
        values[f"recall_macro@{k}"] = recall(judged, k)
    return values | {
        "dcg": dcg(judged, width),
        f"mrr@{width}": reciprocal_rank(judged, width),
        f"ndcg@{width}": ndcg(judged, width),
    }


def candidate_figures(judged: Judged, prefix: str, *, depths: Sequence[int] = (1, 3, 5)) -> dict[str, float]:
    """The means of `candidate_values`; of prefix ``fever``: ``fever_accuracy@1``, ``fever_dcg``, …."""
    values = candidate_values(judged, depths=depths)
    return {f"{prefix}_{name}": float(each.mean()) for name, each in values.items()}
