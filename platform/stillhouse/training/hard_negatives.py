"""Hard negatives: for every (query, passage) pair, the passages nearest to the query by the teacher."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stillhouse.cluster.leases import make_once
from stillhouse.cluster.ray_data import ModelPool, Part
from stillhouse.core.artifacts import Workspace, write_array
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.corpora.reading.cleaning import dedup_key
from stillhouse.corpora.tables import open_examples, open_rows, open_texts, restrict
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.indexes import build_index, search_index
from stillhouse.teachers.store import open_vectors
from stillhouse.training.negative_selection import known_positives, nearest, nearest_of
from stillhouse.training.resumable_parts import in_parts
from stillhouse.values.data import Examples, Mined

if TYPE_CHECKING:
    from stillhouse.corpora.tables import Texts
    from stillhouse.evaluation.search.indexes import Built
    from stillhouse.teachers.store import VectorReader

COLUMN = "negatives"
QUERY_TILE, PASSAGE_TILE = 1024, 8192
"""Pairs per part, each written atomically, and passages in memory at once."""
_GATHERED = 1 << 26
"""Number of vector values found by an index that are in memory at once."""


@dataclass(frozen=True)
class Candidates:
    """The passages that may be negatives, as unit vectors; their ids are rows of the store, ascending."""

    store: "VectorReader"
    ids: IntArray

    @property
    def rows(self) -> int:
        """Number of candidates, N."""
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Dimension of a vector, E."""
        return self.store.dim

    def gather(self, rows: IntArray | slice) -> FloatArray:
        """Gather vectors by candidate index, of the shape of ``rows`` followed by E."""
        return _unit(self.store.gather(self.ids[rows])).numpy()

    def blocks(self) -> Iterator[FloatArray]:
        """Iterate over all vectors in blocks."""
        for start in range(0, self.rows, PASSAGE_TILE):
            yield self.gather(slice(start, start + PASSAGE_TILE))


@dataclass(frozen=True)
class Miner:
    """Mines the negatives of any part of the pairs; it can be sent to other processes.

    Attributes:
        queries: The teacher's vectors of the queries.
        passages: The candidates.
        query: Row of each pair's query.
        asked: The first row with the text of each pair's query.
        passage: Candidate index of each pair's passage.
        rule: Determines which passages may be negatives.
        at_once: Pairs per part.
    """

    queries: "VectorReader"
    passages: Candidates
    query: IntArray
    asked: IntArray
    passage: IntArray
    rule: Mined
    at_once: int

    def part(self, start: int, device: str = "cpu") -> IntArray:
        """Mine the pairs from ``start`` on: (Q, K) candidate indices; -1 if there are too few."""
        pairs = slice(start, start + self.at_once)
        queries_QE = _unit(self.queries.gather(self.query[pairs])).to(device)
        positives_QE = torch.from_numpy(self.passages.gather(self.passage[pairs])).to(device)
        positive_Q = (queries_QE * positives_QE).sum(dim=1)
        positives = known_positives(self.asked[pairs], *self._by_query)
        # Every part has its own generator: its draws do not depend on the process or on earlier parts.
        seed = int(np.random.SeedSequence([self.rule.mining.seed, start]).generate_state(1)[0])
        generator = torch.Generator().manual_seed(seed)
        if self.rule.mining.index == "exact":
            found = nearest(queries_QE, self._tiles(device), positive_Q, positives, self.rule, generator)
        else:
            # The cosines of an index may be rounded: the rule is applied to those of the vectors themselves.
            ids_QN = self._indexed(queries_QE, int(np.bincount(positives[0]).max()))
            cosine_QN = self._cosines(queries_QE, ids_QN)
            found = nearest_of(cosine_QN, ids_QN, positive_Q, positives, self.rule, generator)
        return np.asarray(found.cpu().numpy(), np.int64)

    def parts(self, starts: list[int], device: str = "cpu") -> Iterator[tuple[int, IntArray]]:
        """Mine several parts, one after another."""
        return ((start, self.part(start, device)) for start in starts)

    def opened(self, device: str) -> Part:
        """Return `part` on a device."""
        return partial(self.part, device=device)

    def _tiles(self, device: str) -> Iterator[tuple[int, Tensor]]:
        for number, block in enumerate(self.passages.blocks()):
            yield number * PASSAGE_TILE, torch.from_numpy(block).to(device)

    @cached_property
    def _by_query(self) -> tuple[IntArray, IntArray]:
        """Queries and passages of all pairs, sorted by the query."""
        order = np.argsort(self.asked, kind="stable")
        return self.asked[order], self.passage[order]

    @cached_property
    def _built(self) -> "Built":
        return build_index(parse_index(self.rule.mining.index), self.passages)

    def _indexed(self, queries_QE: Tensor, positives: int) -> Tensor:
        """Find (Q, N) candidate indices: enough to leave ``range_max`` after removing the positives."""
        depth = min(self.rule.mining.range_max + positives, self.passages.rows)
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
            block_QE1 = queries_QE[start : start + at_once, :, None]
            parts.append((found_QNE.to(queries_QE.device) @ block_QE1).squeeze(-1))
        return torch.cat(parts)


def build_mined(
    workspace: Workspace,
    examples: Examples,
    *,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    pool: ModelPool | None = None,
) -> None:
    """Mine the negatives of examples whose origin is `Mined`, unless finished; other processes wait for it.

    Pairs for which the rule leaves fewer than K negatives, or without a teacher vector, are left out and
    counted in the manifest. Of passages with equal texts (see `dedup_key`) the first is the only candidate,
    and equal queries have each other's positives. A killed process loses one part.

    The processes of a pool mine the parts, or this one if there is none.

    Raises:
        BadInput: No pair has enough negatives, or the pairs or stores are missing.
    """
    rule = examples.origin
    assert isinstance(rule, Mined), "only mined examples are mined"
    columns = {"query", "passage", COLUMN}
    require(set(examples.columns) == columns, f"columns = {columns}", columns=list(examples.columns))

    def make(folder: Path) -> dict[str, Any]:
        miner, embedded = _miner(workspace, rule)
        parts = partial(pool.parts, miner.opened) if pool else lambda starts: miner.parts(starts, device)
        found = np.asarray(in_parts(folder, len(miner.query), miner.at_once, parts, progress), np.int64)
        return _written(workspace, folder, miner, found, embedded)

    make_once(workspace, examples, make)


def _miner(workspace: Workspace, rule: Mined) -> tuple[Miner, IntArray]:
    """Return the miner, and the rows of the pairs whose texts have vectors."""
    pairs = open_rows(workspace, rule.pairs)
    queries, passages = open_vectors(workspace, rule.queries), open_vectors(workspace, rule.passages)
    first_of = first_of_equal(open_texts(workspace, rule.passages.texts))
    candidates = passages.rows[np.unique(first_of[passages.rows], return_index=True)[1]]
    candidates.sort()
    place_of = np.full(len(first_of), -1)
    place_of[first_of[candidates]] = np.arange(len(candidates))
    both = np.isin(pairs["query"], queries.rows) & np.isin(pairs["passage"], passages.rows)
    embedded = np.flatnonzero(both)
    if not len(embedded):
        raise BadInput(f"None of the {len(both)} pairs has vectors of both its texts.")
    query, passage = pairs["query"][embedded], place_of[first_of[pairs["passage"][embedded]]]
    asked = first_of_equal(open_texts(workspace, rule.queries.texts))[query]
    reader = Candidates(passages, candidates)
    return Miner(queries, reader, query, asked, passage, rule, QUERY_TILE), embedded


def _written(
    workspace: Workspace, folder: Path, miner: Miner, found: IntArray, embedded: IntArray
) -> dict[str, Any]:
    """Write the pairs that have enough negatives, with all that they hold; returns their manifest."""
    enough, candidates = (found >= 0).all(axis=1), miner.passages.ids
    if not enough.any():
        raise BadInput(
            f"None of the {len(found)} pairs has {miner.rule.negatives} hard negatives among "
            f"{len(candidates)} passages. Reduce the number of negatives, relax the rule, or give more "
            "passages."
        )
    pairs = open_examples(workspace, miner.rule.pairs)
    rows = restrict(pairs, embedded[enough])
    for name, array in {**rows.ids, **rows.values, COLUMN: candidates[found[enough]]}.items():
        write_array(folder / f"{name}.npy", array)
    without_vector = len(next(iter(pairs.ids.values()))) - len(embedded)
    dropped = {"without_vector": without_vector, "too_few_negatives": int((~enough).sum())}
    return {**rows.notes, "rows": int(enough.sum()), "dropped": dropped}


def first_of_equal(texts: "Texts") -> IntArray:
    """Return, for every row of a table, the first row with an equal text (see `dedup_key`)."""
    parts = (texts.shard(index) for index in range(len(texts.shard_starts)))
    keys = np.frombuffer(b"".join(map(dedup_key, chain(*parts))), np.uint64).reshape(-1, 2)[:, 0]
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(first[place], dtype=np.int64)


def _unit(vectors: object) -> Tensor:
    return functional.normalize(torch.as_tensor(vectors, dtype=torch.float32), dim=-1)
