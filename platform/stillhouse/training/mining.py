"""Hard negatives: for every (query, passage) pair the passages nearest to the query by the teacher."""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stillhouse.artifacts import Workspace, locked, write_array, write_manifest
from stillhouse.errors import require
from stillhouse.plan import Examples, Mined
from stillhouse.spec import canonical
from stillhouse.types import IntArray

if TYPE_CHECKING:
    from stillhouse.corpora.tables import Texts
    from stillhouse.teachers.store import StoreReader

COLUMN = "negatives"
QUERY_TILE, PASSAGE_TILE = 1024, 8192


def build_mined(
    workspace: Workspace,
    examples: Examples,
    *,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Mine the negatives of examples whose origin is `Mined`, if nobody has yet; others who want it wait.

    Pairs for which the rule leaves fewer than K negatives, or without a teacher vector, are left out and
    counted in the manifest. Of equal texts the first row stands for all.

    Args:
        workspace: Where the pairs and both stores are.
        examples: What to build; beside ``query`` and ``passage`` it has the column ``negatives``.
        device: Where the products are computed.
        progress: Told of pairs done and in all.

    Raises:
        BadInput: No pair has enough negatives, or what it is mined from is not there.
    """
    if workspace.finished(examples):
        return
    rule = examples.origin
    assert isinstance(rule, Mined), "only mined examples are mined"
    wanted = {"query", "passage", COLUMN}
    require(
        set(examples.columns) == wanted,
        f"mined examples have the columns {wanted}",
        got=list(examples.columns),
    )
    folder = workspace.path(examples)
    with locked(folder.with_suffix(".lock")):
        if not workspace.finished(examples):
            _build(workspace, examples, rule, folder, device, progress)


def _build(
    workspace: Workspace,
    examples: Examples,
    rule: Mined,
    folder: Path,
    device: str,
    progress: Callable[[int, int], None] | None,
) -> None:
    from stillhouse.corpora.tables import open_rows, open_texts
    from stillhouse.teachers.store import open_store

    pairs = open_rows(workspace, rule.pairs)
    queries, passages = open_store(workspace, rule.queries), open_store(workspace, rule.passages)
    query = first_of_equal(open_texts(workspace, rule.queries.texts))[pairs["query"]]
    first = first_of_equal(open_texts(workspace, rule.passages.texts))
    passage, candidates = first[pairs["passage"]], np.intersect1d(first, passages.rows)
    known = np.isin(query, queries.rows) & np.isin(passage, candidates)
    query, passage = query[known], passage[known]
    found = _mine(queries, passages, query, passage, candidates, rule, device, progress)
    enough = (found >= 0).all(axis=1)
    require(
        bool(enough.any()),
        "some pair has K hard negatives",
        negatives=rule.negatives,
        passages=len(candidates),
        pairs=len(query),
        remedy="Ask for fewer negatives, loosen the rule, or give more passages.",
    )
    arrays = {"query": query[enough], "passage": passage[enough], COLUMN: candidates[found[enough]]}
    for name, array in arrays.items():
        write_array(folder / f"{name}.npy", array.astype(np.int64))
    dropped = {"without_vector": int((~known).sum()), "too_few_negatives": int((~enough).sum())}
    write_manifest(folder, {"rows": int(enough.sum()), "dropped": dropped, "plan": canonical(examples)})


def _mine(
    queries: "StoreReader",
    passages: "StoreReader",
    query: IntArray,
    passage: IntArray,
    candidates: IntArray,
    rule: Mined,
    device: str,
    progress: Callable[[int, int], None] | None,
) -> IntArray:
    """(N, K) indices into the candidates, a row a pair; -1 where there are not enough."""
    draws = torch.Generator().manual_seed(rule.seed)
    place = np.searchsorted(candidates, passage)
    found = np.empty((len(query), rule.negatives), dtype=np.int64)
    for start in range(0, len(query), QUERY_TILE):
        chosen = slice(start, start + QUERY_TILE)
        queries_QE = _unit(queries.gather(query[chosen])).to(device)
        positive_Q = (queries_QE * _unit(passages.gather(passage[chosen])).to(device)).sum(dim=1)
        positives = known_positives(query[chosen], query, place)
        tiles = _tiles(passages, candidates, device)
        found[chosen] = nearest(queries_QE, tiles, positive_Q, positives, rule, draws).cpu().numpy()
        if progress:
            progress(min(start + QUERY_TILE, len(query)), len(query))
    return found


def first_of_equal(texts: "Texts") -> IntArray:
    """For every row of a table, the first row with the same text."""
    parts = (texts.shard(index) for index in range(len(texts.shard_starts)))
    digests = (
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in chain(*parts)
    )
    keys = np.frombuffer(b"".join(digests), dtype=np.uint64)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(first[place], dtype=np.int64)


def _tiles(passages: "StoreReader", candidates: IntArray, device: str) -> Iterator[tuple[int, Tensor]]:
    for start in range(0, len(candidates), PASSAGE_TILE):
        yield start, _unit(passages.gather(candidates[start : start + PASSAGE_TILE])).to(device)


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
        if self.depth == 0:
            return
        scores, ids = score_QN.topk(min(self.depth, score_QN.shape[1]), dim=1)
        both = torch.cat([self.scores, scores], dim=1)
        self.scores, place = both.topk(self.depth, dim=1)
        self.ids = torch.cat([self.ids, ids + start], dim=1).gather(1, place)

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


def _unit(vectors: object) -> Tensor:
    return functional.normalize(torch.as_tensor(vectors, dtype=torch.float32), dim=-1)
