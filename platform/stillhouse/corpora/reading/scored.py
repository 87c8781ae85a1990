"""Scored text: queries with a passage, hard negatives and a reranker's score of each, see `forms`."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.corpus import hub_name, list_files, source_tables
from stillhouse.corpora.reading.counting import Spool, Taking
from stillhouse.corpora.reading.forms import ScoredRow, parse_row
from stillhouse.corpora.reading.ingest import note_path, read_once
from stillhouse.corpora.reading.labelled import write_triples
from stillhouse.corpora.tables import Rejected
from stillhouse.values.data import Examples

VERSION = 2
SCORES = "scores"


def read_scored(
    workspace: Workspace, source: str, *, negatives: int = 0, limit: int | None = None, refresh: bool = False
) -> Examples:
    """Read scored text as examples, at the first call and again when a file or an option has changed.

    A row with several positives gives one example for each of them, with the same negatives.

    Args:
        workspace: Workspace for the tables.
        source: JSON lines, CSV, TSV or Parquet: a file, a folder or a glob; or ``hf:name[:config][:split]``.
        negatives: Number of hard negatives per example (K), the first ones; rows with fewer are left out and
            counted. 0 takes as many as the row with the fewest has.
        limit: Number of examples to take, see `counting`; None takes all.
        refresh: Ignore the cache and read it again.

    Returns:
        ``query``, ``passage`` and ``negatives``, (N, K), which are rows of the passages' table; value
        ``scores``, (N, 1 + K), the passage's first.

    Raises:
        BadInput: If the source cannot be read or its columns are not recognised; if a row has an empty text,
            no candidates, another number of scores than of passages, or a score that is not finite; or if no
            row has enough negatives.
    """
    files = [] if hub_name(source) else list_files(source, "file of scores")[1]
    options = {"negatives": negatives, "limit": limit or 0}
    note = note_path(workspace, "scored", {"version": VERSION, "source": source, "files": files, **options})

    def read() -> tuple[Examples, None]:
        taking = Taking[ScoredRow](limit, stream=hub_name(source) is not None, distinct=False)
        rows_with = Counter[int]()
        rows = _with_negatives(_all_rows(source), negatives, rows_with)
        kept = Spool(taking.of(rows, lambda row: repr((row.query, row.passages)).encode()))
        if not rows_with:
            raise BadInput(f"scored text must not be empty, but {source} is.")
        if not kept:
            raise BadInput(
                f"scored text must have rows with {negatives} hard negatives, but those of {source} have at "
                f"most {max(rows_with)}. Lower scores.negatives, or set it to 0."
            )
        width = negatives or min(len(row.passages) for row in kept) - 1
        shorter = sum(rows for number, rows in rows_with.items() if number < negatives)
        _say(source, taking.said(len(kept), "scored rows"), kept, width, shorter)
        scores = (score for row in kept for score in row.scores[: 1 + width])
        values = np.fromiter(scores, np.float32).reshape(-1, 1 + width)
        made = write_triples(
            workspace,
            source,
            ((row.query, row.passages[0], row.passages[1 : 1 + width]) for row in kept),
            given=True,
            label="scored",
            values={SCORES: values},
        )
        return made, None

    return read_once(workspace, note, read, refresh=refresh)


def _with_negatives(
    rows: Iterable[ScoredRow], negatives: int, rows_with: Counter[int]
) -> Iterator[ScoredRow]:
    """Yield the examples with enough hard negatives; all are counted by the number of theirs."""
    for row in rows:
        rows_with[len(row.passages) - 1] += 1
        if len(row.passages) > negatives:
            yield row


def _all_rows(source: str) -> Iterator[ScoredRow]:
    """Read the examples of a source."""
    progress = Progress("reading scored text", "rows")
    located = (each for table in source_tables(source, "file of scores") for each in table.rows(None))
    for number, (where, row) in enumerate(located, start=1):
        if not isinstance(row, Rejected):
            yield from parse_row(row, where)
        elif row.reason != "empty":
            raise BadInput(f"{where} must be one JSON object, but is not: {row.reason}: {row.raw:.60}.")
        if number % 1000 == 0:
            progress(number, None)


def _say(source: str, taken: str, kept: Spool[ScoredRow], width: int, shorter: int) -> None:
    """Print what was read, and how much of it is left out."""
    cut = sum(len(row.passages) - 1 - width for row in kept)
    say(
        f"  {source}: {taken}, {width} hard negatives each"
        + (f", {shorter:,} rows with fewer are left out" if shorter else "")
        + (f", {cut:,} further negatives are left out" if cut else "")
    )
