"""Hard negatives: for every (query, passage) pair the passages nearest to the query by the teacher."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stillhouse.core.artifacts import Workspace, locked, write_array, write_manifest
from stillhouse.core.errors import require
from stillhouse.core.identity import canonical
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.examples.negative_selection import known_positives, nearest, nearest_of
from stillhouse.examples.resumable_parts import Make, in_parts, remove_parts
from stillhouse.plan.data import Examples, Mined

if TYPE_CHECKING:
    from stillhouse.corpora.tables import Texts
    from stillhouse.evaluation.search.indexes import Built
    from stillhouse.teachers.store import StoreReader

COLUMN = "negatives"
QUERY_TILE, PASSAGE_TILE = 1024, 8192
"""Pairs of a part, each whole or not at all, and passages that are in memory at once."""
_GATHERED = 1 << 26
"""Values of the vectors that an index found, in memory at once."""


@dataclass(frozen=True)
class Candidates:
    """The passages that may be negatives, as unit vectors.

    Attributes:
        store: The teacher's vectors.
        ids: Row of each in the store, ascending.
    """

    store: "StoreReader"
    ids: IntArray

    @property
    def rows(self) -> int:
        """Their number, N."""
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Dimension of a vector, E."""
        return self.store.dim

    def gather(self, rows: IntArray | slice) -> FloatArray:
        """Vectors by index among the candidates: the shape of ``rows``, and E."""
        return _unit(self.store.gather(self.ids[rows])).numpy()

    def blocks(self) -> Iterator[FloatArray]:
        """All vectors, some at a time."""
        for start in range(0, self.rows, PASSAGE_TILE):
            yield self.gather(slice(start, start + PASSAGE_TILE))


@dataclass(frozen=True)
class Miner:
    """Mines a part of the pairs, whichever is asked for; it travels to other processes.

    Attributes:
        queries: The teacher's vectors of the queries.
        passages: The candidates.
        query: Row of each pair's query.
        passage: Candidate index of each pair's passage.
        rule: Which passages may be negatives.
        at_once: Pairs of a part.
    """

    queries: "StoreReader"
    passages: Candidates
    query: IntArray
    passage: IntArray
    rule: Mined
    at_once: int

    def part(self, start: int, device: str = "cpu") -> IntArray:
        """(Q, K) candidate indices for the pairs from ``start``; -1 where there are not enough."""
        chosen = slice(start, start + self.at_once)
        queries_QE = _unit(self.queries.gather(self.query[chosen])).to(device)
        told_QE = torch.from_numpy(self.passages.gather(self.passage[chosen])).to(device)
        positive_Q = (queries_QE * told_QE).sum(dim=1)
        positives = known_positives(self.query[chosen], self.query, self.passage)
        # A part's draws are its own: they do not depend on who mines it, nor on what was mined before.
        seed = int(np.random.SeedSequence([self.rule.seed, start]).generate_state(1)[0])
        draws = torch.Generator().manual_seed(seed)
        if self.rule.index == "exact":
            found = nearest(queries_QE, self._tiles(device), positive_Q, positives, self.rule, draws)
        else:
            # What an index says of a cosine may be rounded: the rule judges by the vectors themselves.
            ids_QN = self._indexed(queries_QE, int(np.bincount(positives[0]).max()))
            cosine_QN = self._cosines(queries_QE, ids_QN)
            found = nearest_of(cosine_QN, ids_QN, positive_Q, positives, self.rule, draws)
        return np.asarray(found.cpu().numpy(), np.int64)

    def parts(self, starts: list[int], device: str = "cpu") -> Iterator[tuple[int, IntArray]]:
        """Some parts, one after the other."""
        return ((start, self.part(start, device)) for start in starts)

    def _tiles(self, device: str) -> Iterator[tuple[int, Tensor]]:
        start = 0
        for block in self.passages.blocks():
            yield start, torch.from_numpy(block).to(device)
            start += len(block)

    @cached_property
    def _built(self) -> "Built":
        from stillhouse.evaluation.search.indexes import build_index, parse_index

        return build_index(parse_index(self.rule.index), self.passages)

    def _indexed(self, queries_QE: Tensor, positives: int) -> Tensor:
        """(Q, N) candidate indices: so many of the nearest that ``range_max`` are left without positives."""
        from stillhouse.evaluation.search.indexes import search_index

        depth = min(self.rule.range_max + positives, self.passages.rows)
        (_, ids), _ = search_index(
            self._built, queries_QE.cpu().numpy(), depth, threads=torch.get_num_threads()
        )
        return torch.from_numpy(ids).to(queries_QE.device)

    def _cosines(self, queries_QE: Tensor, ids_QN: Tensor) -> Tensor:
        rows = ids_QN.clamp_min(0).cpu().numpy()
        at_once = max(1, _GATHERED // (rows.shape[1] * self.passages.dim))
        parts = []
        for start in range(0, len(rows), at_once):
            found_QNE = torch.from_numpy(self.passages.gather(rows[start : start + at_once]))
            asked_QE1 = queries_QE[start : start + at_once, :, None]
            parts.append((found_QNE.to(queries_QE.device) @ asked_QE1).squeeze(-1))
        return torch.cat(parts)


def build_mined(
    workspace: Workspace,
    examples: Examples,
    *,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    spread: Callable[[Miner], Make] | None = None,
) -> None:
    """Mine the negatives of examples whose origin is `Mined`, if nobody has yet; others who want it wait.

    Pairs for which the rule leaves fewer than K negatives, or without a teacher vector, are left out and
    counted in the manifest. Of equal texts the first row stands for all. A killed process loses one part.

    Args:
        workspace: Where the pairs and both stores are.
        examples: What to build; beside ``query`` and ``passage`` it has the column ``negatives``.
        device: Where the products are computed.
        progress: Told of pairs done and in all.
        spread: Has a miner's parts made elsewhere, in any order; None makes them here.

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
            miner, without_vector = _miner(workspace, rule)
            make = spread(miner) if spread else lambda starts: miner.parts(starts, device)
            found = np.asarray(in_parts(folder, len(miner.query), miner.at_once, make, progress), np.int64)
            _finish(folder, examples, miner, found, without_vector)
            remove_parts(folder)


def _miner(workspace: Workspace, rule: Mined) -> tuple[Miner, int]:
    """What mines, and how many pairs it leaves out since they have no vector."""
    from stillhouse.corpora.tables import open_rows, open_texts
    from stillhouse.teachers.store import open_store

    pairs = open_rows(workspace, rule.pairs)
    queries, passages = open_store(workspace, rule.queries), open_store(workspace, rule.passages)
    query = first_of_equal(open_texts(workspace, rule.queries.texts))[pairs["query"]]
    first = first_of_equal(open_texts(workspace, rule.passages.texts))
    passage, candidates = first[pairs["passage"]], np.intersect1d(first, passages.rows)
    known = np.isin(query, queries.rows) & np.isin(passage, candidates)
    place = np.searchsorted(candidates, passage[known])
    require(bool(known.any()), "some pair has vectors of both its texts", pairs=len(query))
    miner = Miner(queries, Candidates(passages, candidates), query[known], place, rule, QUERY_TILE)
    return miner, int((~known).sum())


def _finish(folder: Path, examples: Examples, miner: Miner, found: IntArray, without_vector: int) -> None:
    enough, candidates = (found >= 0).all(axis=1), miner.passages.ids
    require(
        bool(enough.any()),
        "some pair has K hard negatives",
        negatives=miner.rule.negatives,
        passages=len(candidates),
        pairs=len(found),
        remedy="Ask for fewer negatives, loosen the rule, or give more passages.",
    )
    arrays = {
        "query": miner.query[enough],
        "passage": candidates[miner.passage[enough]],
        COLUMN: candidates[found[enough]],
    }
    for name, array in arrays.items():
        write_array(folder / f"{name}.npy", array)
    dropped = {"without_vector": without_vector, "too_few_negatives": int((~enough).sum())}
    write_manifest(folder, {"rows": int(enough.sum()), "dropped": dropped, "plan": canonical(examples)})


def first_of_equal(texts: "Texts") -> IntArray:
    """For every row of a table, the first row with the same text."""
    parts = (texts.shard(index) for index in range(len(texts.shard_starts)))
    digests = (
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in chain(*parts)
    )
    keys = np.frombuffer(b"".join(digests), dtype=np.uint64)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(first[place], dtype=np.int64)


def _unit(vectors: object) -> Tensor:
    return functional.normalize(torch.as_tensor(vectors, dtype=torch.float32), dim=-1)
