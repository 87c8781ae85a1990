"""The passages that a rule allows as hard negatives, nearest to their queries first."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from stillhouse.core.types import IntArray
from stillhouse.plan.data import Mined


def known_positives(tile: IntArray, query: IntArray, passage: IntArray) -> tuple[IntArray, IntArray]:
    """Every passage that answers a query of the tile, in any pair: none of them may be a negative.

    Args:
        tile: Query ids.
        query: Query id of every pair.
        passage: Candidate index of every pair.

    Returns:
        Position in the tile, and candidate index, of each.
    """
    order = np.argsort(query, kind="stable")
    first = np.searchsorted(query[order], tile, side="left")
    count = np.searchsorted(query[order], tile, side="right") - first
    where = np.repeat(np.arange(len(tile)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return where, passage[order][np.repeat(first, count) + offset]


def nearest(
    queries_QE: Tensor,
    tiles: Iterable[tuple[int, Tensor]],
    positive_Q: Tensor,
    positives: tuple[IntArray, IntArray],
    rule: Mined,
    draws: torch.Generator,
) -> Tensor:
    """K passages a query that the rule allows; memory holds one tile of the passages.

    Args:
        queries_QE: Unit vectors.
        tiles: Unit vectors of candidates, (N, E), after the index of the first.
        positive_Q: Cosine of each query with its positive.
        positives: What `known_positives` returns.
        rule: Which passages may be negatives.
        draws: Of a random choice.

    Returns:
        (Q, K) candidate indices, the nearest first where they are taken; -1 where there are not enough.
    """
    limit_Q1 = _limit(positive_Q, rule)[:, None]
    row, column = (torch.from_numpy(ids).to(queries_QE.device) for ids in positives)
    from_all = rule.sampling == "random" and rule.range_max == 0
    depth = rule.range_min + rule.negatives
    best = _Top(len(queries_QE), rule.range_max or (rule.range_min if from_all else depth), queries_QE)
    drawn = _Top(len(queries_QE), depth if from_all else 0, queries_QE)
    for start, passages_NE in tiles:
        cosine_QN = queries_QE @ passages_NE.T
        here = (column >= start) & (column < start + len(passages_NE))
        cosine_QN[row[here], column[here] - start] = -torch.inf
        if rule.range_max == 0:
            cosine_QN = _allowed(cosine_QN, limit_Q1, rule)
        best.add(cosine_QN, start)
        if from_all:
            drawn.add(_shuffled(cosine_QN, draws), start)
    if from_all:
        return drawn.without(best).first(rule.negatives)
    return _chosen(best, limit_Q1, rule, draws)


def nearest_of(
    cosine_QN: Tensor,
    ids_QN: Tensor,
    positive_Q: Tensor,
    positives: tuple[IntArray, IntArray],
    rule: Mined,
    draws: torch.Generator,
) -> Tensor:
    """As `nearest`, of the passages that an index found for each query; the rule has a ``range_max``.

    Args:
        cosine_QN: Of each query with what was found for it.
        ids_QN: Candidate indices; -1 where the index found no more.
        positive_Q: Cosine of each query with its positive.
        positives: What `known_positives` returns.
        rule: Which passages may be negatives.
        draws: Of a random choice.
    """
    assert rule.range_max > 0, "an index finds so many of the nearest"
    row, column = (torch.from_numpy(ids).to(ids_QN.device) for ids in positives)
    queries = len(ids_QN)
    place_Q1 = torch.arange(queries, device=ids_QN.device)[:, None]
    left_out_QN = torch.isin(ids_QN * queries + place_Q1, column * queries + row) | (ids_QN == -1)
    best = _Top(queries, rule.range_max, cosine_QN)
    best.take(cosine_QN.masked_fill(left_out_QN, -torch.inf), ids_QN)
    return _chosen(best, _limit(positive_Q, rule)[:, None], rule, draws)


def _chosen(best: "_Top", limit_Q1: Tensor, rule: Mined, draws: torch.Generator) -> Tensor:
    best.scores = _allowed(best.scores, limit_Q1, rule)
    best.skip(rule.range_min)
    if rule.sampling == "random":
        best.scores = _shuffled(best.scores, draws)
    return best.first(rule.negatives)


def _limit(positive_Q: Tensor, rule: Mined) -> Tensor:
    """A negative's cosine is below this."""
    limit_Q = torch.full_like(positive_Q, torch.inf)
    if rule.relative_margin >= 0:
        # A share of the cosine itself would raise the limit above it where the cosine is negative.
        limit_Q = torch.minimum(limit_Q, positive_Q - rule.relative_margin * positive_Q.abs())
    if rule.absolute_margin >= 0:
        limit_Q = torch.minimum(limit_Q, positive_Q - rule.absolute_margin)
    return limit_Q


def _allowed(cosine_QN: Tensor, limit_Q1: Tensor, rule: Mined) -> Tensor:
    """The cosines, those that the rule forbids at minus infinity."""
    forbidden_QN = cosine_QN >= limit_Q1
    # A cosine of 1 is a little more or less in floating point, and the ends of the range forbid nothing.
    if rule.max_score < 1:
        forbidden_QN |= cosine_QN > rule.max_score
    if rule.min_score > -1:
        forbidden_QN |= cosine_QN < rule.min_score
    return cosine_QN.masked_fill(forbidden_QN, -torch.inf)


def _shuffled(cosine_QN: Tensor, draws: torch.Generator) -> Tensor:
    """A random number in the place of every cosine that is allowed."""
    random_QN = torch.rand(cosine_QN.shape, generator=draws).to(cosine_QN)
    return random_QN.masked_fill(cosine_QN == -torch.inf, -torch.inf)


class _Top:
    """The best of all tiles so far."""

    def __init__(self, rows: int, depth: int, like: Tensor) -> None:
        self.depth = depth
        self.scores = torch.full((rows, depth), -torch.inf, dtype=like.dtype, device=like.device)
        self.ids = torch.full((rows, depth), -1, dtype=torch.int64, device=like.device)

    def add(self, score_QN: Tensor, start: int) -> None:
        """Take in the passages of a tile, the first of which has the index ``start``."""
        if self.depth > 0:
            scores, place = score_QN.topk(min(self.depth, score_QN.shape[1]), dim=1)
            self.take(scores, place + start)

    def take(self, scores: Tensor, ids: Tensor) -> None:
        both = torch.cat([self.scores, scores], dim=1)
        self.scores, place = both.topk(self.depth, dim=1)
        self.ids = torch.cat([self.ids, ids], dim=1).gather(1, place)

    def without(self, other: "_Top") -> "_Top":
        repeated = (self.ids[:, :, None] == other.ids[:, None, :]).any(dim=2)
        self.scores = self.scores.masked_fill(repeated, -torch.inf)
        return self

    def skip(self, count: int) -> None:
        self.scores, place = self.scores.sort(dim=1, descending=True)
        self.ids = self.ids.gather(1, place)
        self.scores[:, :count] = -torch.inf

    def first(self, count: int) -> Tensor:
        """The ids of the best, -1 where there are not so many."""
        scores, place = self.scores.topk(count, dim=1)
        return self.ids.gather(1, place).masked_fill(scores == -torch.inf, -1)
