"""Retrieval evaluation, and a pool of Ray actors that trials share for searching.

The pool must never block training: if it is dead, slow or missing, the same search runs in this process, with
the same number of threads and therefore with the same result.
"""

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, require
from stillhouse.core.roles import ASYMMETRIC, DOCUMENT, QUERY
from stillhouse.core.types import Encoder, FloatArray, IntArray, encode_as
from stillhouse.corpora.tables import Texts, open_judgements, open_texts
from stillhouse.evaluation.items import FiguresAndItems, means
from stillhouse.evaluation.metrics import Values, trec_values, without
from stillhouse.evaluation.search.exact import TILE, Ranking, merge, search_stream, shards
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.indexes import (
    AUTO,
    EXACT,
    Passages,
    chosen_index,
    recall_of_exact,
    search_passages,
)
from stillhouse.evaluation.vector_geometry import alignment, uniformity
from stillhouse.teachers.store import open_vectors
from stillhouse.values.data import Collection, TableStore

log = logging.getLogger(__name__)

BLOCK = 4 * TILE
"""Passages whose stored vectors are in memory at once."""
NEAR = 2e-6
"""Scores of vectors of length 1 that differ by less may differ by the rounding of float32 alone."""
_SPARE = 8
"""Further passages that are ranked, so that rounding decides nothing at the last place."""


class Search(Protocol):
    """Ranks passages for an evaluator, which searches in its own process if it is given None instead."""

    def search(self, passages_ND: Passages, queries_QD: FloatArray, k: int) -> Ranking:
        """Find the top k passages of every query."""


class LocalSearch:
    """Search in this process.

    Args:
        threads: Number of threads; None keeps torch's current number.
        index: ``auto``, ``exact``, or an index of `evaluation.search.indexes`.
    """

    def __init__(self, threads: int | None = None, index: str = AUTO) -> None:
        self.threads, self.index = threads, index

    def search(self, passages_ND: Passages, queries_QD: FloatArray, k: int) -> Ranking:
        """Find the top k passages of every query."""
        threads = self.threads or torch.get_num_threads()
        index, _ = chosen_index(self.index, threads)
        if index != EXACT:
            return search_passages(index, passages_ND, queries_QD, k, threads=threads)
        blocks = (passages_ND[at : at + BLOCK] for at in range(0, len(passages_ND), BLOCK))
        return search_stream(queries_QD, blocks, k, threads=self.threads)


class DocSearch:
    """Retrieval of the passages that answer a query, by cosine.

    Figures: ``{name}_cosine_mrr@10``, ``_ndcg@10``, ``_recall@1``, ``_recall@10``, ``_recall@100``; and the
    geometry of the vectors: ``{name}_alignment`` of queries with their passages, ``{name}_uniformity`` of the
    queries and the same number of passages. Queries without a relevant passage are left out. The figures are
    trec_eval's on the top k (see `trec_values`), without the passage that is the query itself. An index that
    misses passages adds ``{name}_cosine_recall_of_exact@10``.

    With ``documents``, the queries also search the teacher's vectors of the passages (asymmetric search), and
    the ranking figures of that are named ``{name}_asymmetric_cosine_…``. A model of another dimension has
    none of them.

    Args:
        collection: Queries, passages and judgements.
        workspace: Holds the collection.
        k: Depth of the ranking; figures at greater depths are left out.
        name: Prefix of the figures' names.
        search: Ranks the passages; None searches in this process.
        documents: The teacher's vectors of the passages, or of a table that has them among its texts; None
            searches the model's own alone.
        index: An index that misses passages, ``hnsw`` or ``ivfpq``; empty for the nearest passages.
    """

    version: ClassVar[int] = 1
    unit: ClassVar[str] = "queries"
    unless_default: ClassVar[tuple[str, ...]] = ("documents", "index")

    def __init__(
        self,
        collection: Collection,
        workspace: Workspace,
        k: int = 100,
        name: str = "docsearch",
        search: Search | None = None,
        documents: TableStore | None = None,
        index: str = "",
    ) -> None:
        require(k >= 10, "k >= 10", k=k)
        self.k, self.name, self.index = k, name, index
        self.ranker = search or LocalSearch(1 if index else None, index or AUTO)
        judgements = open_judgements(workspace, collection)
        self.qrels_N3 = judgements.qrels_N3
        self.names = judgements.names_N if len(judgements.names_N) else None
        self.query_rows = np.unique(self.qrels_N3[self.qrels_N3[:, 2] > 0, 0])
        if not len(self.query_rows):
            raise BadInput(f"the collection {collection.label} must have a relevant passage, but has none.")
        self.queries = open_texts(workspace, collection.queries)[self.query_rows]
        own = dict(judgements.own_N2.tolist())
        self.own = np.array([own.get(row, -1) for row in self.query_rows.tolist()])
        self.passages = open_texts(workspace, collection.passages)
        self.documents = None if documents is None else StoredPassages(workspace, collection, documents)

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode, rank and judge."""
        return self.itemised(model)[0]

    def counts(self) -> dict[str, int]:
        """Count the queries with a relevant passage."""
        names = [self.name] if self.documents is None else [self.name, f"{self.name}_{ASYMMETRIC}"]
        return dict.fromkeys(names, len(self.query_rows))

    def itemised(self, model: Encoder) -> FiguresAndItems:
        """Compute the figures, and return the queries of those that are means over queries."""
        # Strings of one block are in memory at a time.
        blocks = (self.passages[at : at + BLOCK] for at in range(0, len(self.passages), BLOCK))
        passages_ND = np.concatenate([unit(encode_as(model, DOCUMENT, texts)) for texts in blocks])
        queries_QD = self._encoded_queries(model)
        values = self._ranked(queries_QD, passages_ND, f"{self.name}_cosine")
        figures = {name: float(values_Q.mean()) for name, values_Q in values.items()}
        there = (self.qrels_N3[:, 2] > 0) & (self.qrels_N3[:, 1] >= 0)
        query_P, passage_P = self.qrels_N3[there, :2].T
        place_P = np.searchsorted(self.query_rows, query_P)
        sample = np.concatenate([queries_QD, passages_ND[: len(queries_QD)]])
        figures[f"{self.name}_alignment"] = alignment(queries_QD[place_P], passages_ND[passage_P])
        figures[f"{self.name}_uniformity"] = uniformity(sample)
        asymmetric, items = self._asymmetric(queries_QD)
        return figures | asymmetric, means(values) | items

    def asymmetric(self, model: Encoder) -> FiguresAndItems:
        """Compute the figures of the model's queries among the teacher's vectors; nothing else is encoded."""
        return self._asymmetric(self._encoded_queries(model))

    def _encoded_queries(self, model: Encoder) -> FloatArray:
        return unit(encode_as(model, QUERY, self.queries))

    def _asymmetric(self, queries_QD: FloatArray) -> FiguresAndItems:
        if self.documents is None or queries_QD.shape[1] != self.documents.dim:
            return {}, {}
        values = self._ranked(queries_QD, self.documents, f"{self.name}_{ASYMMETRIC}_cosine")
        return {name: float(values_Q.mean()) for name, values_Q in values.items()}, means(values)

    def _ranked(self, queries_QD: FloatArray, passages_ND: Passages, name: str) -> dict[str, Values]:
        """Rank the passages of every query, and judge the rankings."""
        depth = self.k + bool((self.own >= 0).any()) + _SPARE
        found = settled(self.ranker.search(passages_ND, queries_QD, depth), queries_QD, passages_ND)
        recall = {}
        if self.index:
            exact = LocalSearch(1, EXACT).search(passages_ND, queries_QD, 10)[1]
            share = recall_of_exact(found[1], exact, 10)
            recall = {f"{name}_recall_of_exact@10": np.full(len(queries_QD), share)}
        scores_QK, rows_QK = without(found, self.own)
        top = scores_QK[:, : self.k], rows_QK[:, : self.k]
        values = trec_values(top, self.query_rows, self.qrels_N3, self.names)
        depths = [f"recall@{depth}" for depth in (1, 10, 100) if depth <= self.k]
        return recall | {f"{name}_{figure}": values[figure] for figure in ("mrr@10", "ndcg@10", *depths)}


class StoredPassages:
    """A teacher's vectors of a collection's passages, from a store of these, or of a table that they are in.

    Raises:
        BadInput: The store is not finished, or lacks a passage.
    """

    def __init__(self, workspace: Workspace, collection: Collection, store: TableStore) -> None:
        self.reader = open_vectors(workspace, store)
        self.dim = self.reader.dim
        passages = open_texts(workspace, collection.passages)
        whole = store.texts == collection.passages
        self.rows = np.arange(len(passages)) if whole else _rows_among(passages, workspace, store)

    def __len__(self) -> int:
        """The number of passages."""
        return len(self.rows)

    def __getitem__(self, part: slice, /) -> FloatArray:
        """Read vectors, scaled to length 1; a text that the teacher could not embed has the vector 0."""
        rows = self.rows[part]
        vectors_NE = np.zeros((len(rows), self.dim), np.float32)
        known_N = np.isin(rows, self.reader.rows)
        vectors_NE[known_N] = self.reader.gather(rows[known_N])
        return unit(vectors_NE)


def _rows_among(sample: Texts, workspace: Workspace, store: TableStore) -> IntArray:
    """Find the rows of a store that hold the texts of a sample."""
    place = {text: at for at, text in enumerate(sample)}
    rows = np.full(len(sample), -1, np.int64)
    for row, text in enumerate(open_texts(workspace, store.texts)):
        if text in place:
            rows[place[text]] = row
    missing = int((rows < 0).sum())
    require(not missing, "the teacher's vectors must be those of the collection's passages", without=missing)
    return rows


def settled(found: Ranking, queries_QD: FloatArray, passages_ND: Passages) -> Ranking:
    """Rank passages whose scores differ by rounding alone by their products in float64, then by id.

    Every exact search then gives the same ranking, whichever library computes it and however it is sharded.
    """
    scores_QK, ids_QK = found[0].copy(), found[1]
    close = np.abs(np.diff(scores_QK, axis=1)) < NEAR
    member = np.pad(close, ((0, 0), (0, 1))) | np.pad(close, ((0, 0), (1, 0)))
    queries, places = np.nonzero(member & (ids_QK >= 0))
    for at in range(0, len(queries), BLOCK):
        query, place = queries[at : at + BLOCK], places[at : at + BLOCK]
        rows = ids_QK[query, place].tolist()
        vectors_ND = np.concatenate([passages_ND[row : row + 1] for row in rows]).astype(np.float64)
        products = np.einsum("nd,nd->n", queries_QD[query].astype(np.float64), vectors_ND)
        scores_QK[query, place] = products.astype(np.float32)
    order = np.lexsort((ids_QK, -scores_QK), axis=1)
    return np.take_along_axis(scores_QK, order, axis=1), np.take_along_axis(ids_QK, order, axis=1)


def unit(vectors_ND: FloatArray) -> FloatArray:
    """Scale rows to length 1 in float32; zero vectors stay zero."""
    vectors_ND = np.asarray(vectors_ND, dtype=np.float32)
    lengths = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return vectors_ND / np.where(lengths > 0, lengths, np.float32(1))


class SearchPool:
    """Actors that search shards of passages, with a fallback to this process. Passed to trials by value.

    Each actor, and the fallback, uses ``threads`` threads. The ``deadline`` is in seconds.
    """

    def __init__(self, actors: Sequence[Any], threads: int, index: str = AUTO, deadline: float = 60) -> None:
        self.actors, self.threads, self.index, self.deadline = tuple(actors), threads, index, deadline
        self.broken = False

    def search(self, passages_ND: Passages, queries_QD: FloatArray, k: int) -> Ranking:
        """Find the top k passages of every query, with the passages spread over the actors in whole tiles."""
        import ray

        if not self.broken and ray.is_initialized():
            try:
                return self._spread(passages_ND, queries_QD, k)
            except ray.exceptions.RayError as error:
                self.broken = True
                reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
                log.warning("the search actors do not respond; searching in this process: %s", reason)
        return LocalSearch(self.threads, self.index).search(passages_ND, queries_QD, k)

    def _spread(self, passages_ND: Passages, queries_QD: FloatArray, k: int) -> Ranking:
        import ray

        ranges = shards(len(passages_ND), len(self.actors))
        queries = ray.put(queries_QD)
        answers = [
            actor.search.remote(queries, ray.put(passages_ND[start:stop]), k, start)
            for actor, (start, stop) in zip(self.actors, ranges, strict=False)
        ]
        parts = ray.get(answers, timeout=self.deadline)
        return merge(parts, k) if len(parts) > 1 else parts[0]


def start_search_pool(actors: int, threads: int, *, index: str = AUTO) -> SearchPool:
    """Start search actors that reserve no CPU. They end with the driver.

    Args:
        actors: Number of actors.
        threads: Threads of each actor; fixed, because results depend on it.
        index: See `LocalSearch`; one that misses passages needs a single actor, which holds them all.
    """
    import ray

    require(actors >= 1, "actors >= 1", actors=actors)
    require(threads >= 1, "threads >= 1", threads=threads)
    parse_index(index, others=(AUTO, EXACT))
    worker = ray.remote(num_cpus=0, max_restarts=2)(_Searcher)
    return SearchPool([worker.remote(threads, index) for _ in range(actors)], threads, index)


class _Searcher:
    """The actor. It holds a shard for the duration of a call."""

    def __init__(self, threads: int, index: str) -> None:
        self.threads, self.index = threads, index

    def search(self, queries_QD: FloatArray, passages_ND: FloatArray, k: int, first_id: int) -> Ranking:
        """Find the top k of a shard."""
        scores, ids = LocalSearch(self.threads, self.index).search(passages_ND, queries_QD, k)
        return scores, np.where(ids < 0, ids, ids + first_id)
