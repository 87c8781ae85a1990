"""Rankings as TREC runs: figures, writing, reading and checking.

The figures are those of trec_eval: nDCG with linear gains, MAP over all relevant passages, equal scores in
descending order of the passage's id. In [0, 1].
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import BadInput
from stillhouse.core.types import IntArray
from stillhouse.core.user_files import writing
from stillhouse.corpora.published.judged import JudgedCollection
from stillhouse.evaluation.metrics import Judged, Values, ndcg, recall, reciprocal_rank
from stillhouse.evaluation.search.exact import Ranking
from stillhouse.evaluation.sts import read_lines

TAG = "stillhouse"

Run = dict[str, list[tuple[str, float]]]
"""Query id to passage ids and scores, best first."""


def as_run(
    collection: JudgedCollection, ranking: Ranking, ids_of: Callable[[IntArray], list[str]], depth: int
) -> Run:
    """Convert a ranking of rows to a run of ids.

    Args:
        collection: Its queries, in their order, are those of the ranking.
        ranking: One place deeper than ``depth``; places without a passage have the row -1.
        ids_of: Maps rows to ids.
        depth: Passages per query, after a hit with the query's own id is dropped where ids are shared.
    """
    run: Run = {}
    for query, scores, rows in zip(collection.queries, *ranking, strict=True):
        filled = rows >= 0
        hits = list(zip(ids_of(rows[filled]), scores[filled].astype(float).tolist(), strict=True))
        kept = [hit for hit in hits if not (collection.shared_ids and hit[0] == query)]
        run[query] = _ordered(kept)[:depth]
    return run


def run_figures(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Compute ``ndcg@10``, ``mrr@10``, ``map`` and ``recall@{1,10,100,1000}``, means over judged queries."""
    return {name: float(values.mean()) for name, values in query_figures(run, qrels).items()}


def query_figures(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, Values]:
    """Compute the figures of `run_figures` query by query.

    Args:
        run: The rankings; a query that is missing counts as having found nothing.
        qrels: Query id to passage id to gain; queries without a relevant passage are left out.

    Raises:
        BadInput: If no query has a relevant passage.
    """
    judgements = {query: gains for query, gains in qrels.items() if max(gains.values(), default=0) > 0}
    if not judgements:
        raise BadInput("at least one query must have a relevant passage, but none has.")
    width = max(10, *(len(run.get(query, ())) for query in judgements))
    gains_QK = np.zeros((len(judgements), width))
    ideal_QR = np.zeros((len(judgements), max(len(gains) for gains in judgements.values())))
    for line, (query, gains) in enumerate(judgements.items()):
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
    """Write a run in TREC format: ``query Q0 passage rank score tag``."""
    lines = (
        f"{query} Q0 {passage} {rank} {score:.9g} {TAG}\n"
        for query, hits in run.items()
        for rank, (passage, score) in enumerate(hits, start=1)
    )
    with writing(path) as file:
        file.writelines(lines)


def read_run(path: Path) -> Run:
    """Read a run, written here or elsewhere. Its lines may come in any order.

    Raises:
        BadInput: If a line is malformed, a query has a passage twice, or ranks and scores disagree; the
            message names the line.
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
            raise BadInput(
                f"{path}, line {at}: {query!r} must have one passage per rank, but has two at rank {rank}."
            )
        if next_score > score:
            raise BadInput(
                f"{path}, line {at}: scores must fall as ranks rise, but {query!r} has {score:g} at rank "
                f"{rank} and {next_score:g} at rank {next_rank}. Sort the run, or renumber its ranks."
            )


def open_run(path: Path, collection: JudgedCollection) -> tuple[Run, list[str]]:
    """Read the run of a collection.

    Passages that the collection does not have keep their ranks, as in trec_eval.

    Returns:
        The run, and notes on what in it does not count, one sentence each.

    Raises:
        BadInput: As for `read_run`, or if the run belongs to another collection.
    """
    run = read_run(path)
    unknown = {hit for hits in run.values() for hit, _ in hits}
    named = len(unknown)
    for entry in collection.stream():
        unknown.discard(entry.id)
    unjudged = set(run) - set(collection.queries)
    if len(unjudged) == len(run) or 2 * len(unknown) >= max(2, named):
        raise BadInput(
            f"{path} must be a run of {collection.name}, but {len(unjudged)} of its {len(run)} queries and "
            f"{len(unknown)} of its {named} passages are not in that collection."
        )
    absent = len(set(collection.queries) - set(run))
    findings = (
        (len(unjudged), "queries have no relevant passage: left out", 0, unjudged),
        (len(unknown), "passages are not in the collection: not relevant", 2, unknown),
    )
    notes = [
        f"{count} {what} ({path}, line {_first_line(path, column, names)})"
        for count, what, column, names in findings
        if count
    ]
    return run, notes + ([f"{absent} judged queries are not in {path}: they count as 0"] if absent else [])


def _first_line(path: Path, column: int, names: set[str]) -> int:
    return next(at for at, line in read_lines(path) if line.split()[column] in names)


def _average_precision(judged: Judged) -> npt.NDArray[np.float64]:
    hits = judged.gains_QK > 0
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.asarray((precision * hits).sum(axis=1) / judged.relevant_Q)


def _ordered(hits: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Sort as trec_eval does: by descending score, then by descending id."""
    return sorted(hits, key=lambda hit: (hit[1], hit[0]), reverse=True)
