"""Scored text: queries with a passage, hard negatives and a reranker's score of each, see `forms`."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.corpus import hub_name, list_files, skipped_files, source_tables
from stillhouse.corpora.reading.counting import Spool, Taking
from stillhouse.corpora.reading.forms import ScoredRow, parse_row
from stillhouse.corpora.reading.ingest import corpus_label, note_path, read_once
from stillhouse.corpora.reading.labelled import write_triples
from stillhouse.corpora.reading.schema import UNUSED, Schema
from stillhouse.corpora.reading.understood import Reading, Understood
from stillhouse.corpora.tables import Rejected
from stillhouse.values.data import Examples

VERSION = 3
SCORES = "scores"
SCORED = Schema(owner="scores")
_KIND = "file of scores"


def read_scored(
    workspace: Workspace,
    source: str,
    *,
    negatives: int = 0,
    limit: int | None = None,
    refresh: bool = False,
    schema: Schema = SCORED,
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
        schema: Columns whose names do not tell their role, and which rows are used.

    Returns:
        ``query``, ``passage`` and ``negatives``, (N, K), which are rows of the passages' table; value
        ``scores``, (N, 1 + K), the passage's first.

    Raises:
        BadInput: If the source cannot be read or its columns are not recognised; if a row has an empty text,
            no candidates, another number of scores than of passages, or a score that is not finite; or if no
            row has enough negatives.
    """
    files = [] if hub_name(source) else list_files(source, _KIND)[1]
    options = {"negatives": negatives, "limit": limit or 0, "schema": schema}
    note = note_path(workspace, "scored", {"version": VERSION, "source": source, "files": files, **options})

    def read() -> tuple[Examples, Understood]:
        taking = Taking[ScoredRow](limit, stream=hub_name(source) is not None, distinct=False)
        reading = Reading(corpus_label(source), schema.language, skipped_files(source))
        rows_with = Counter[int]()

        def enough() -> Iterator[ScoredRow]:
            for row in _all_rows(source, schema, reading):
                rows_with[len(row.passages) - 1] += 1
                if len(row.passages) > negatives:
                    yield row
                else:
                    reading.aside[f"with fewer than {negatives} hard negatives"] += 1

        kept = Spool(taking.of(enough(), lambda row: repr((row.query, row.passages)).encode()))
        if not rows_with:
            raise BadInput(f"scored text must not be empty, but {source} is.")
        if not kept:
            raise BadInput(
                f"scored text must have rows with {negatives} hard negatives, but those of {source} have at "
                f"most {max(rows_with)}. Lower scores.negatives, or set it to 0."
            )
        width = negatives or min(len(row.passages) for row in kept) - 1
        cut = sum(len(row.passages) - 1 - width for row in kept)
        further = f", {cut:,} further negatives are left out" if cut else ""
        first = next(iter(kept))
        texts = dict(zip(("query", "passage", "negatives"), (first.query, *first.passages), strict=False))
        reading.examples |= texts
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
        note = f"{width} hard negatives each{further}"
        return made, reading.understood(len(kept), taking, note=note)

    return read_once(workspace, note, read, refresh=refresh)


def _all_rows(source: str, schema: Schema, reading: Reading) -> Iterator[ScoredRow]:
    """Read the examples of a source; columns that have a stated role are called by it."""
    progress = Progress("reading scored text", "rows")
    number = 0
    for table in source_tables(source, _KIND, schema):
        stated = schema.stated(table.columns, source)
        unused = stated.pop(UNUSED, [])
        role_of = {names[0]: role for role, names in stated.items()}
        roles = {role_of.get(name, name): name for name in table.columns if name not in unused}
        reading.opened(table.form, roles, unused, table.notes)
        for at, row in schema.rows(table):
            where = table.where(at)
            number += 1
            if not isinstance(row, Rejected):
                named = {role_of.get(name, name): value for name, value in row.items() if name not in unused}
                yield from parse_row(named, where)
            elif schema.positive and row.reason.endswith("(not used)"):
                reading.aside[row.reason] += 1
            elif row.reason != "empty":
                raise BadInput(f"{where} must be one JSON object, but is not: {row.reason}: {row.raw:.60}.")
            if number % 1000 == 0:
                progress(number, None)
