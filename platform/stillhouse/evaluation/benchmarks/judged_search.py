"""Retrieval on published collections: passages are encoded block by block, the best of each query kept.

The figures are those of trec_eval on the run that is written: nDCG with linear gains, MAP over all relevant
passages, equal scores in falling order of the passage's id. In [0, 1].
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import write_atomically
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import Encoder, FloatArray, IntArray
from stillhouse.corpora.published.judged import Entry, JudgedCollection
from stillhouse.evaluation.metrics import Judged, Values, ndcg, recall, reciprocal_rank
from stillhouse.evaluation.retrieval import unit
from stillhouse.evaluation.search.exact import TILE, Ranking, search_stream
from stillhouse.evaluation.search.sharded import THREADS
from stillhouse.evaluation.sts import read_lines

DEPTH = 1000
BLOCK = 2 * TILE
TAG = "stillhouse"

Run = dict[str, list[tuple[str, float]]]
"""Query id to passage ids and scores, best first."""


def rank_collection(
    collection: JudgedCollection, model: Encoder, *, depth: int = DEPTH, block: int = BLOCK
) -> Run:
    """The best passages of every query by cosine; at no time more vectors than a block's are held.

    Args:
        collection: What is searched.
        model: Encodes queries and passages.
        depth: Passages a query, after a hit with the query's own id is dropped where ids are shared.
        block: Passages encoded at once, a multiple of `TILE`.
    """
    require(block % TILE == 0 and block > 0, f"block is a multiple of {TILE}", block=block)
    queries_QD = unit(model.encode(list(collection.queries.values())))
    ids: list[str] = []

    def blocks() -> Iterator[FloatArray]:
        for entries in _blocks(collection.stream(), block):
            ids.extend(entry.id for entry in entries)
            yield unit(model.encode([entry.text for entry in entries]))

    ranking = search_stream(queries_QD, blocks(), depth + 1, threads=THREADS)
    return as_run(collection, ranking, lambda rows: [ids[row] for row in rows], depth)


def as_run(
    collection: JudgedCollection, ranking: Ranking, ids_of: Callable[[IntArray], list[str]], depth: int
) -> Run:
    """A ranking of rows as a run of ids.

    Args:
        collection: Whose queries were asked, in their order.
        ranking: One place deeper than ``depth``; places without a passage have the row -1.
        ids_of: Rows to ids.
        depth: Passages a query, after a hit with the query's own id is dropped where ids are shared.
    """
    run: Run = {}
    for query, scores, rows in zip(collection.queries, *ranking, strict=True):
        there = rows >= 0
        hits = list(zip(ids_of(rows[there]), scores[there].astype(float).tolist(), strict=True))
        kept = [hit for hit in hits if not (collection.shared_ids and hit[0] == query)]
        run[query] = _ordered(kept)[:depth]
    return run


def run_figures(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """``ndcg@10``, ``mrr@10``, ``map`` and ``recall@{1,10,100,1000}``, means over the judged queries."""
    return {name: float(values.mean()) for name, values in query_figures(run, qrels).items()}


def query_figures(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, Values]:
    """The same figures query by query.

    Args:
        run: The rankings; a query that is missing has found nothing.
        qrels: Query id to passage id to gain; queries without a relevant passage are left out.
    """
    wanted = {query: gains for query, gains in qrels.items() if max(gains.values(), default=0) > 0}
    require(bool(wanted), "a query has a relevant passage")
    width = max(10, *(len(run.get(query, ())) for query in wanted))
    gains_QK = np.zeros((len(wanted), width))
    ideal_QR = np.zeros((len(wanted), max(len(gains) for gains in wanted.values())))
    for line, (query, gains) in enumerate(wanted.items()):
        found = [max(0, gains.get(passage, 0)) for passage, _ in _ordered(run.get(query, []))]
        gains_QK[line, : len(found)] = found
        best = sorted((gain for gain in gains.values() if gain > 0), reverse=True)
        ideal_QR[line, : len(best)] = best
    judged = Judged(gains_QK, ideal_QR)
    return {
        "ndcg@10": ndcg(judged, 10),
        "mrr@10": reciprocal_rank(judged, 10),
        "map": _average_precision(judged),
        **{f"recall@{k}": recall(judged, k) for k in (1, 10, 100, 1000)},
    }


def write_run(path: Path, run: Run) -> None:
    """A run as TREC has it: ``query Q0 passage rank score tag``."""
    lines = (
        f"{query} Q0 {passage} {rank} {score:.9g} {TAG}\n"
        for query, hits in run.items()
        for rank, (passage, score) in enumerate(hits, start=1)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(lines).encode())


def read_run(path: Path) -> Run:
    """A run that was written, by us or by others. Its lines may come in any order.

    Raises:
        BadInput: With its line: one that is none of a run, a passage twice for a query, or ranks and scores
            that say different orders.
    """
    found: dict[str, dict[str, tuple[int, float, int]]] = {}
    for at, line in read_lines(path):
        cells = line.split()
        try:
            query, _, passage, rank, score, _ = cells
            hit = (int(rank), float(score), at)
        except ValueError:
            raise BadInput(f"{path}, line {at}: must be `query Q0 passage rank score tag`.") from None
        if not np.isfinite(hit[1]):
            raise BadInput(f"{path}, line {at}: must have a finite score, but has {score}.")
        if passage in found.setdefault(query, {}):
            raise BadInput(f"{path}, line {at}: {query!r} must have {passage!r} once, but has it again.")
        found[query][passage] = hit
    for query, hits in found.items():
        _check_order(path, query, sorted(hits.values(), key=lambda hit: (hit[0], hit[2])))
    return {
        query: _ordered([(passage, score) for passage, (_, score, _) in hits.items()])
        for query, hits in found.items()
    }


def _check_order(path: Path, query: str, by_rank: list[tuple[int, float, int]]) -> None:
    for (rank, score, _), (next_rank, next_score, at) in itertools.pairwise(by_rank):
        if rank == next_rank:
            raise BadInput(f"{path}, line {at}: {query!r} must have a passage a rank, but has two at {rank}.")
        if next_score > score:
            raise BadInput(
                f"{path}, line {at}: scores must fall as ranks rise, but {query!r} has {score:g} at rank "
                f"{rank} and {next_score:g} at rank {next_rank}. Sort the run, or number its ranks anew."
            )


def open_run(path: Path, collection: JudgedCollection) -> tuple[Run, list[str]]:
    """A run of a collection, and what of it does not count, a sentence each.

    Passages that the collection does not have keep their ranks, as in trec_eval.

    Raises:
        BadInput: As for `read_run`, or the run is of another collection.
    """
    run = read_run(path)
    strange = {hit for hits in run.values() for hit, _ in hits}
    named = len(strange)
    for entry in collection.stream():
        strange.discard(entry.id)
    unjudged = set(run) - set(collection.queries)
    require(
        len(unjudged) < len(run) and 2 * len(strange) < max(2, named),
        "a run is of the collection that it is measured on",
        run=str(path),
        collection=collection.name,
        strange_queries=f"{len(unjudged)} of {len(run)}",
        strange_passages=f"{len(strange)} of {named}",
    )
    missing = len(set(collection.queries) - set(run))
    found = (
        (len(unjudged), "queries have no relevant passage: left out", 0, unjudged),
        (len(strange), "passages are none of the collection's: not relevant", 2, strange),
    )
    notes = [
        f"{count} {what} ({path}, line {_first_line(path, column, names)})"
        for count, what, column, names in found
        if count
    ]
    return run, notes + ([f"{missing} judged queries are not in {path}: they count as 0"] if missing else [])


def _first_line(path: Path, column: int, names: set[str]) -> int:
    return next(at for at, line in read_lines(path) if line.split()[column] in names)


def _average_precision(judged: Judged) -> npt.NDArray[np.float64]:
    hits = judged.gains_QK > 0
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.asarray((precision * hits).sum(axis=1) / judged.relevant_Q)


def _ordered(hits: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """As trec_eval sorts: by falling score, then by falling id."""
    return sorted(hits, key=lambda hit: (hit[1], hit[0]), reverse=True)


def _blocks(entries: Iterable[Entry], size: int) -> Iterator[list[Entry]]:
    remaining = iter(entries)
    while block := list(itertools.islice(remaining, size)):
        yield block
