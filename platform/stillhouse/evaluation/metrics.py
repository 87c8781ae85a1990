"""Rank correlation and ranking metrics, equal to those of scipy and sentence-transformers.

Ranking metrics are computed per query and averaged by the caller, so that two models can be compared query by
query.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.evaluation.search.exact import Ranking, require_finite

Values = npt.NDArray[np.float64]


def number(sides: Iterable[Iterable[str]]) -> dict[str, int]:
    """Number the distinct texts of some sides: text to its row among the vectors."""
    return {text: row for row, text in enumerate(dict.fromkeys(text for side in sides for text in side))}


def cosines(a_ND: FloatArray, b_ND: FloatArray) -> Values:
    """Compute the cosine of every row of ``a`` with the same row of ``b``; 0 if either is a zero vector.

    Raises:
        BadInput: If a vector is not finite.
    """
    require_finite(a_ND, "vectors")
    require_finite(b_ND, "vectors")
    a, b = np.asarray(a_ND, np.float64), np.asarray(b_ND, np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(np.einsum("nd,nd->n", a, b) / np.where(lengths > 0, lengths, 1.0))


def spearman(a_N: npt.ArrayLike, b_N: npt.ArrayLike) -> float:
    """Compute Spearman's rank correlation in [-1, 1]; equal values share their mean rank.

    It is NaN where one side is constant, because that has no order to agree with.
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
        gains_QK: The gain of the passage at each rank; 0 if it is not relevant.
        ideal_QR: The positive gains of each query, highest first, then zeros.
    """

    gains_QK: Values
    ideal_QR: Values

    @property
    def relevant_Q(self) -> Values:
        """Number of relevant passages per query."""
        return np.asarray((self.ideal_QR > 0).sum(axis=1), np.float64)


def judge(ids_QK: IntArray, query_rows_Q: IntArray, qrels_N3: IntArray) -> Judged:
    """Look up the judgements of a ranking.

    Args:
        ids_QK: Passage ids, best first; -1 where there is none.
        query_rows_Q: The query of each line of ``ids_QK``; each has a relevant passage.
        qrels_N3: Query, passage, gain; a passage is relevant if its gain is positive. Passages that cannot be
            found have ids below -1.

    Raises:
        BadInput: If a pair is judged twice, or a query has no relevant passage.
    """
    qrels = qrels_N3[np.isin(qrels_N3[:, 0], query_rows_Q) & (qrels_N3[:, 2] > 0)].astype(np.int64)
    qrels = qrels[np.lexsort((-qrels[:, 2], qrels[:, 0]))]
    first = np.searchsorted(qrels[:, 0], query_rows_Q)
    counts = np.searchsorted(qrels[:, 0], query_rows_Q, side="right") - first
    if not (counts > 0).all():
        raise BadInput(
            f"every query must have a relevant passage, but {int((counts == 0).sum())} of {len(counts)} "
            "have none."
        )
    ideal = np.zeros((len(query_rows_Q), int(counts.max())))
    for line, (start, count) in enumerate(zip(first, counts, strict=True)):
        ideal[line, :count] = qrels[start : start + count, 2]

    least = int(min(ids_QK.min(initial=-1), qrels[:, 1].min()))
    width = int(max(ids_QK.max(initial=0), qrels[:, 1].max())) - least + 1
    known, at = np.unique(qrels[:, 0] * width + (qrels[:, 1] - least), return_index=True)
    if len(known) < len(qrels):
        raise BadInput(
            f"a query and a passage must be judged once, but {len(qrels) - len(known)} pairs come again."
        )
    keys_QK = np.asarray(query_rows_Q, np.int64)[:, None] * width + (ids_QK - least)
    place_QK = np.minimum(np.searchsorted(known, keys_QK), len(known) - 1)
    gains = np.where(known[place_QK] == keys_QK, qrels[at[place_QK], 2], 0).astype(np.float64)
    return Judged(gains, ideal)


def reciprocal_rank(judged: Judged, k: int) -> Values:
    """Compute 1 / rank of the first relevant passage within the top k, else 0; the mean is MRR@k."""
    hits = judged.gains_QK[:, :k] > 0
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1.0), 0.0)


def ndcg(judged: Judged, k: int) -> Values:
    """Compute DCG over the best possible DCG, with linear gains as in trec_eval and log2(rank + 1) discounts.

    Equal to sentence-transformers if every gain is 1; there, graded gains count as 1.
    """
    return dcg(judged, k) / _dcg(judged.ideal_QR[:, :k])


def dcg(judged: Judged, k: int) -> Values:
    """Compute DCG, which is not normalised and so grows with the number of relevant passages."""
    return _dcg(judged.gains_QK[:, :k])


def recall(judged: Judged, k: int) -> Values:
    """Compute the share of the relevant passages that are within the top k."""
    return np.asarray((judged.gains_QK[:, :k] > 0).sum(axis=1) / judged.relevant_Q)


def average_precision(judged: Judged, k: int | None = None) -> Values:
    """Compute the mean precision at the ranks of the relevant passages within the top k; the mean is MAP@k.

    The sum is divided by min(k, relevant), as in sentence-transformers; without a k by the number of all
    relevant passages, as in trec_eval.
    """
    hits = judged.gains_QK[:, :k] > 0
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    most = judged.relevant_Q if k is None else np.minimum(judged.relevant_Q, k)
    return np.asarray((precision * hits).sum(axis=1) / most)


def trec_values(
    ranking: Ranking, query_rows_Q: IntArray, qrels_N3: IntArray, names_N: IntArray | None = None
) -> dict[str, Values]:
    """Compute trec_eval's figures per query: ``ndcg@10``, ``mrr@10``, ``map``, ``recall@{1,10,100,1000}``.

    Args:
        ranking: Scores and passage ids; -1 where there is no passage.
        query_rows_Q: As for `judge`, like ``qrels_N3``.
        qrels_N3: Judgements.
        names_N: Numbers in the order of the passages' names: of equal scores, in float32 as in trec_eval, the
            highest comes first. None keeps the order of the ranking.
    """
    scores_QK, ids_QK = np.asarray(ranking[0], np.float32), ranking[1]
    if names_N is not None:
        order_QK = np.lexsort((-names_N[ids_QK], np.where(ids_QK < 0, np.inf, -scores_QK)), axis=1)
        ids_QK = np.take_along_axis(ids_QK, order_QK, axis=1)
    judged = judge(ids_QK, query_rows_Q, qrels_N3)
    return {
        "ndcg@10": ndcg(judged, 10),
        "mrr@10": reciprocal_rank(judged, 10),
        "map": average_precision(judged),
        **{f"recall@{k}": recall(judged, k) for k in (1, 10, 100, 1000)},
    }


def without(ranking: Ranking, own_Q: IntArray) -> Ranking:
    """Take the passage of an id out of each line of a ranking; the line ends with the id -1 instead."""
    scores_QK, ids_QK = ranking
    gone_QK = ids_QK == own_Q[:, None]
    order_QK = np.argsort(gone_QK, axis=1, kind="stable")
    kept_QK = np.take_along_axis(np.where(gone_QK, -1, ids_QK), order_QK, axis=1)
    return np.take_along_axis(scores_QK, order_QK, axis=1), kept_QK


def _dcg(gains_QK: Values) -> Values:
    return np.asarray(gains_QK @ (1.0 / np.log2(np.arange(gains_QK.shape[1]) + 2.0)))
