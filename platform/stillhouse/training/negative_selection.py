"""Selection of the passages that a rule allows as hard negatives, nearest to their queries first."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from stillhouse.core.types import IntArray
from stillhouse.values.data import Mined
from stillhouse.values.mining import Mining


def known_positives(tile: IntArray, query: IntArray, passage: IntArray) -> tuple[IntArray, IntArray]:
    """Find all passages that answer a query of the tile in any pair: none of them may be a negative.

    Args:
        tile: Query ids.
        query: Query id of every pair, ascending.
        passage: Candidate index of every pair, in the same order.

    Returns:
        The position in the tile and the candidate index of each.
    """
    first = np.searchsorted(query, tile, side="left")
    count = np.searchsorted(query, tile, side="right") - first
    where = np.repeat(np.arange(len(tile)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return where, passage[np.repeat(first, count) + offset]


def nearest(
    queries_QE: Tensor,
    tiles: Iterable[tuple[int, Tensor]],
    positive_Q: Tensor,
    positives: tuple[IntArray, IntArray],
    rule: Mined,
    generator: torch.Generator,
) -> Tensor:
    """Select K passages per query that the rule allows, with one tile of the passages in memory.

    Args:
        queries_QE: Unit vectors.
        tiles: Index of the first candidate and unit vectors of the candidates, (N, E), per tile.
        positive_Q: Cosine of each query with its positive.
        positives: The result of `known_positives`.
        rule: Determines which passages may be negatives.
        generator: Generator for random sampling.

    Returns:
        (Q, K) candidate indices, nearest first unless sampled; -1 if there are too few.
    """
    mining = rule.mining
    row, column = (torch.from_numpy(ids).to(queries_QE.device) for ids in positives)
    from_all = mining.sampling == "random" and mining.range_max == 0
    depth = mining.range_min + rule.negatives
    best = _Top(len(queries_QE), mining.range_max or (mining.range_min if from_all else depth), queries_QE)
    drawn = _Top(len(queries_QE), depth if from_all else 0, queries_QE)
    for start, passages_NE in tiles:
        cosine_QN = queries_QE @ passages_NE.T
        inside = (column >= start) & (column < start + len(passages_NE))
        cosine_QN[row[inside], column[inside] - start] = -torch.inf
        if mining.range_max == 0:
            cosine_QN = _allowed(cosine_QN, positive_Q, mining)
        best.add(cosine_QN, start)
        if from_all:
            drawn.add(_shuffled(cosine_QN, generator), start)
    if from_all:
        return drawn.without(best).first(rule.negatives)
    return _selected(best, positive_Q, rule, generator)


def nearest_of(
    cosine_QN: Tensor,
    ids_QN: Tensor,
    positive_Q: Tensor,
    positives: tuple[IntArray, IntArray],
    rule: Mined,
    generator: torch.Generator,
) -> Tensor:
    """As `nearest`, among the passages that an index found for each query: their cosines and indices.

    An index is -1 where too few were found. The rule has a ``range_max``.
    """
    assert rule.mining.range_max > 0, "an index finds `range_max` of the nearest passages"
    row, column = (torch.from_numpy(ids).to(ids_QN.device) for ids in positives)
    queries = len(ids_QN)
    place_Q1 = torch.arange(queries, device=ids_QN.device)[:, None]
    excluded_QN = torch.isin(ids_QN * queries + place_Q1, column * queries + row) | (ids_QN == -1)
    best = _Top(queries, rule.mining.range_max, cosine_QN)
    best.merge(cosine_QN.masked_fill(excluded_QN, -torch.inf), ids_QN)
    return _selected(best, positive_Q, rule, generator)


def _selected(best: "_Top", positive_Q: Tensor, rule: Mined, generator: torch.Generator) -> Tensor:
    best.scores = _allowed(best.scores, positive_Q, rule.mining)
    best.skip(rule.mining.range_min)
    if rule.mining.sampling == "random":
        best.scores = _shuffled(best.scores, generator)
    return best.first(rule.negatives)


def _allowed(cosine_QN: Tensor, positive_Q: Tensor, rule: Mining) -> Tensor:
    """Set the cosines that the rule excludes to minus infinity."""
    allowed_QN = cosine_QN
    for excluded_QN in rule.excluded(cosine_QN, positive_Q[:, None]):
        allowed_QN = allowed_QN.masked_fill(excluded_QN, -torch.inf)
    return allowed_QN


def _shuffled(cosine_QN: Tensor, generator: torch.Generator) -> Tensor:
    """Replace every allowed cosine by a random number."""
    random_QN = torch.rand(cosine_QN.shape, generator=generator).to(cosine_QN)
    return random_QN.masked_fill(cosine_QN == -torch.inf, -torch.inf)


class _Top:
    """The best candidates of all tiles so far."""

    def __init__(self, rows: int, depth: int, like: Tensor) -> None:
        self.depth = depth
        self.scores = torch.full((rows, depth), -torch.inf, dtype=like.dtype, device=like.device)
        self.ids = torch.full((rows, depth), -1, dtype=torch.int64, device=like.device)

    def add(self, score_QN: Tensor, start: int) -> None:
        """Add the passages of a tile, the first of which has the index ``start``."""
        if self.depth > 0:
            scores, place = score_QN.topk(min(self.depth, score_QN.shape[1]), dim=1)
            self.merge(scores, place + start)

    def merge(self, scores: Tensor, ids: Tensor) -> None:
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
        """Return the ids of the best, -1 if there are too few."""
        scores, place = self.scores.topk(count, dim=1)
        return self.ids.gather(1, place).masked_fill(scores == -torch.inf, -1)
