"""Rank correlation and ranking metrics, equal to scipy's and sentence-transformers'.

Ranking metrics are computed a query at a time and averaged by the caller, so that two models can be compared
query by query.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import require
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.evaluation.search.exact import finite

Values = npt.NDArray[np.float64]


def cosines(a_ND: FloatArray, b_ND: FloatArray) -> Values:
    """The cosine of every row of ``a`` with the same row of ``b``; 0 where one of them is a zero vector.

    Raises:
        BadInput: A vector that is not finite.
    """
    finite(a_ND, "vectors")
    finite(b_ND, "vectors")
    a, b = np.asarray(a_ND, np.float64), np.asarray(b_ND, np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(np.einsum("nd,nd->n", a, b) / np.where(lengths > 0, lengths, 1.0))


def spearman(a_N: npt.ArrayLike, b_N: npt.ArrayLike) -> float:
    """Compute Spearman's rank correlation in [-1, 1]; equal values share their mean rank.

    Returns:
        NaN where one side is constant, because it has no order to agree with.
    """
    a, b = np.asarray(a_N), np.asarray(b_N)
    assert a.shape == b.shape
    return float(spearman_rows(a, b))


def spearman_rows(a_BN: npt.NDArray[np.generic], b_BN: npt.NDArray[np.generic]) -> Values:
    """Compute Spearman's rank correlation over the last axis, for many samples at once; see `spearman`.

    `scipy.stats.spearmanr` would correlate every row with every other, and misses 1 by a rounding error where
    both orders are the same.
    """
    from scipy.stats import rankdata

    ranks = (rankdata(each, axis=-1) for each in (a_BN, b_BN))
    a, b = (each - each.mean(axis=-1, keepdims=True) for each in ranks)
    lengths = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    return divided((a * b).sum(axis=-1), lengths).clip(-1.0, 1.0)


def divided(numerator_B: Values, denominator_B: Values) -> Values:
    """Divide; NaN where the denominator is not positive."""
    positive = denominator_B > 0
    return np.asarray(np.where(positive, numerator_B / np.where(positive, denominator_B, 1.0), np.nan))


@dataclass(frozen=True)
class Judged:
    """A ranking with its judgements.

    Attributes:
        gains_QK: The gain of the passage at each rank; 0 where it is not relevant.
        ideal_QR: Each query's positive gains, highest first, then zeros.
    """

    gains_QK: Values
    ideal_QR: Values

    @property
    def relevant_Q(self) -> Values:
        """Relevant passages a query."""
        return np.asarray((self.ideal_QR > 0).sum(axis=1), np.float64)


def judge(ids_QK: IntArray, query_rows_Q: IntArray, qrels_N3: IntArray) -> Judged:
    """Look up what a ranking found.

    Args:
        ids_QK: Passage ids, best first.
        query_rows_Q: The query that each line of ``ids_QK`` belongs to, each with a relevant passage.
        qrels_N3: Query, passage, gain; a passage is relevant when its gain is positive.

    Raises:
        BadInput: A pair judged twice, or a query that has nothing to find.
    """
    qrels = qrels_N3[np.isin(qrels_N3[:, 0], query_rows_Q) & (qrels_N3[:, 2] > 0)].astype(np.int64)
    qrels = qrels[np.lexsort((-qrels[:, 2], qrels[:, 0]))]
    first = np.searchsorted(qrels[:, 0], query_rows_Q)
    counts = np.searchsorted(qrels[:, 0], query_rows_Q, side="right") - first
    require(bool((counts > 0).all()), "every query has a relevant passage", without=int((counts == 0).sum()))
    ideal = np.zeros((len(query_rows_Q), int(counts.max())))
    for line, (start, count) in enumerate(zip(first, counts, strict=True)):
        ideal[line, :count] = qrels[start : start + count, 2]

    width = int(max(ids_QK.max(initial=0), qrels[:, 1].max())) + 1
    known, at = np.unique(qrels[:, 0] * width + qrels[:, 1], return_index=True)
    require(len(known) == len(qrels), "a query and a passage are judged once", judged=len(qrels))
    wanted = np.asarray(query_rows_Q, np.int64)[:, None] * width + ids_QK
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    gains = np.where(known[place] == wanted, qrels[at[place], 2], 0).astype(np.float64)
    return Judged(gains, ideal)


def reciprocal_rank(judged: Judged, k: int) -> Values:
    """One over the rank of the first relevant passage within the top k, else 0; its mean is MRR@k."""
    hits = judged.gains_QK[:, :k] > 0
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1.0), 0.0)


def ndcg(judged: Judged, k: int) -> Values:
    """Discounted gain over the best possible one, gains linear as in trec_eval, discounts log2(rank + 1).

    Equals sentence-transformers where every gain is 1; there graded gains count as 1.
    """
    return dcg(judged, k) / _dcg(judged.ideal_QR[:, :k])


def dcg(judged: Judged, k: int) -> Values:
    """Discounted gain as it is, not divided by the best possible one: it grows with the relevant passages."""
    return _dcg(judged.gains_QK[:, :k])


def recall(judged: Judged, k: int) -> Values:
    """The share of the relevant passages within the top k."""
    return np.asarray((judged.gains_QK[:, :k] > 0).sum(axis=1) / judged.relevant_Q)


def average_precision(judged: Judged, k: int) -> Values:
    """Mean precision at the ranks of the relevant passages within the top k; its mean is MAP@k.

    Divided by the most that k places can hold, min(k, relevant), as in sentence-transformers; trec_eval
    divides by all the relevant ones.
    """
    hits = judged.gains_QK[:, :k] > 0
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.asarray((precision * hits).sum(axis=1) / np.minimum(judged.relevant_Q, k))


def ranking_values(
    judged: Judged,
    prefix: str,
    *,
    mrr: Sequence[int] = (10,),
    gain: Sequence[int] = (10,),
    share: Sequence[int] = (1, 10, 100),
    precision: Sequence[int] = (),
) -> dict[str, Values]:
    """Figures query by query, named as sentence-transformers names their means: ``{prefix}_mrr@10``, ….

    Args:
        judged: The ranking.
        prefix: ``docsearch_cosine``.
        mrr: Depths of the mean reciprocal rank.
        gain: Depths of nDCG.
        share: Depths of recall.
        precision: Depths of mean average precision.
    """
    asked = (("mrr", reciprocal_rank, mrr), ("ndcg", ndcg, gain), ("recall", recall, share))
    return {
        f"{prefix}_{name}@{k}": measure(judged, k)
        for name, measure, depths in (*asked, ("map", average_precision, precision))
        for k in depths
    }


def _dcg(gains_QK: Values) -> Values:
    return np.asarray(gains_QK @ (1.0 / np.log2(np.arange(gains_QK.shape[1]) + 2.0)))
