"""Rankings as TREC runs: figures, writing, reading and checking.

The figures are those of trec_eval: nDCG with linear gains, MAP over all relevant passages, equal scores in
descending order of the passage's id. In [0, 1].
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from stillhouse.core.errors import BadInput
from stillhouse.core.types import IntArray
from stillhouse.core.user_files import writing
from stillhouse.corpora.published.judged import JudgedCollection, ascii_cells
from stillhouse.corpora.reading.row_limit import in_blocks
from stillhouse.evaluation.metrics import Values, trec_values, without
from stillhouse.evaluation.search.exact import Ranking
from stillhouse.evaluation.sts import read_lines

TAG = "stillhouse"
_AT_ONCE = 1024
"""Queries whose passages' ids are in memory at once."""

Run = Mapping[str, list[tuple[str, float]]]
"""Query id to passage ids and scores, best first."""


class RankedRun(Run):
    """The run of a ranking of rows. The ids of a query's passages are looked up when they are asked for.

    Args:
        collection: Its queries, in their order, are those of the ranking.
        ranking: Scores and rows, best first, one place deeper than ``depth``; places without a passage have
            the row -1.
        ids_of: Maps rows to ids.
        depth: Passages per query, after the passage that is the query itself is dropped.
    """

    def __init__(
        self,
        collection: JudgedCollection,
        ranking: Ranking,
        ids_of: Callable[[IntArray], list[str]],
        depth: int,
    ) -> None:
        own_Q = np.array([collection.own.get(query, -1) for query in collection.queries])
        self._rows = {query: row for row, query in enumerate(collection.queries)}
        self._ranking, self._ids_of, self._depth = without(ranking, own_Q), ids_of, depth

    def __getitem__(self, query: str) -> list[tuple[str, float]]:
        """The passages of a query with their scores, in trec_eval's order."""
        scores_K, rows_K = (side[self._rows[query]] for side in self._ranking)
        there = rows_K >= 0
        hits = zip(self._ids_of(rows_K[there]), scores_K[there].astype(float).tolist(), strict=True)
        return _ordered(list(hits))[: self._depth]

    def __iter__(self) -> Iterator[str]:
        """The queries."""
        return iter(self._rows)

    def __len__(self) -> int:
        """The number of queries."""
        return len(self._rows)


def run_figures(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Compute the figures of `query_figures`, means over judged queries."""
    return {name: float(values.mean()) for name, values in query_figures(run, qrels).items()}


def query_figures(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> dict[str, Values]:
    """Compute ``ndcg@10``, ``mrr@10``, ``map`` and ``recall@{1,10,100,1000}`` of every query.

    Args:
        run: The rankings; a query that is missing counts as having found nothing.
        qrels: Query id to passage id to gain; queries without a relevant passage are left out.

    Raises:
        BadInput: If no query has a relevant passage.
    """
    judgements = {query: gains for query, gains in qrels.items() if max(gains.values(), default=0) > 0}
    if not judgements:
        raise BadInput("at least one query must have a relevant passage, but none has.")
    parts = [_values_of(run, dict(part)) for part in in_blocks(judgements.items(), _AT_ONCE)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _values_of(run: Run, judgements: Mapping[str, Mapping[str, int]]) -> dict[str, Values]:
    found = [run.get(query, []) for query in judgements]
    scores_QK = np.zeros((len(found), max(10, *map(len, found))), np.float32)
    ids_QK = np.full(scores_QK.shape, -1, np.int64)
    judged: list[tuple[int, int, int]] = []
    for line, (hits, gains) in enumerate(zip(found, judgements.values(), strict=True)):
        number = {name: at for at, name in enumerate(sorted({*gains, *(hit for hit, _ in hits)}))}
        scores_QK[line, : len(hits)] = [score for _, score in hits]
        ids_QK[line, : len(hits)] = [number[hit] for hit, _ in hits]
        judged += [(line, number[passage], gain) for passage, gain in gains.items()]
    qrels_N3 = np.array(judged)
    most = max(int(ids_QK.max()), int(qrels_N3[:, 1].max()))
    return trec_values((scores_QK, ids_QK), np.arange(len(ids_QK)), qrels_N3, np.arange(most + 1))


def require_plain_ids(ids: Iterable[str]) -> None:
    """Refuse ids that a run cannot hold, since blanks separate its cells."""
    for name in ids:
        if ascii_cells(name) != [name]:
            raise BadInput(
                f"an id in a TREC run must have no blank, but {name!r} has one. Rename it in the files."
            )


def write_run(path: Path, run: Run) -> None:
    """Write a run in TREC format: ``query Q0 passage rank score tag``.

    Raises:
        BadInput: If an id has a blank.
    """

    def lines() -> Iterator[str]:
        for query, hits in run.items():
            require_plain_ids([query, *(passage for passage, _ in hits)])
            for rank, (passage, score) in enumerate(hits, start=1):
                yield f"{query} Q0 {passage} {rank} {score:.9g} {TAG}\n"

    with writing(path) as file:
        file.writelines(lines())


def read_run(path: Path) -> Run:
    """Read a run, written here or elsewhere. Its lines may come in any order.

    Raises:
        BadInput: If a line is malformed, a query has a passage twice, or ranks and scores disagree; the
            message names the line.
    """
    found: dict[str, dict[str, tuple[int, float, int]]] = {}
    for at, line in read_lines(path):
        cells = ascii_cells(line)
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
    return next(at for at, line in read_lines(path) if ascii_cells(line)[column] in names)


def _ordered(hits: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Sort as trec_eval does: by descending score, then by descending id."""
    return sorted(hits, key=lambda hit: (hit[1], hit[0]), reverse=True)
