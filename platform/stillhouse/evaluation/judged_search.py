"""Retrieval on published collections: passages are encoded block by block, the best of each query kept.

The figures are those of trec_eval on the run that is written: nDCG with linear gains, MAP over all relevant
passages, equal scores in falling order of the passage's id. In [0, 1].
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stillhouse.artifacts import write_atomically
from stillhouse.corpora.judged import Entry, JudgedCollection
from stillhouse.errors import BadInput, require
from stillhouse.evaluation.metrics import Judged, Values, ndcg, recall, reciprocal_rank
from stillhouse.evaluation.retrieval import unit
from stillhouse.evaluation.search import TILE, Ranking, merge, search
from stillhouse.evaluation.sts import read_lines
from stillhouse.types import Encoder

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
    best: Ranking | None = None
    ids: list[str] = []
    for entries in _blocks(collection.stream(), block):
        passages_ND = unit(model.encode([entry.text for entry in entries]))
        found = search(queries_QD, passages_ND, depth + 1, len(ids))
        best = found if best is None else merge([best, found], depth + 1)
        ids.extend(entry.id for entry in entries)
    assert best is not None, "a collection has passages"
    run: Run = {}
    for query, scores, places in zip(collection.queries, *best, strict=True):
        hits = [(ids[place], float(score)) for place, score in zip(places, scores, strict=True)]
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
    """A run that was written, by us or by others.

    Raises:
        BadInput: A line that is none of a run, with its number.
    """
    run: Run = {}
    for at, line in read_lines(path):
        cells = line.split()
        try:
            query, _, passage, _, score, _ = cells
            run.setdefault(query, []).append((passage, float(score)))
        except ValueError:
            raise BadInput(f"{path}, line {at}: must be `query Q0 passage rank score tag`.") from None
    return {query: _ordered(hits) for query, hits in run.items()}


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
