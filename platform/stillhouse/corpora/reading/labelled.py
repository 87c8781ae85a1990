"""Labelled text: pairs of a query and a passage, with hard negatives and a reranker's scores of each, or NLI.

The forms in which common tools write hard negatives are in `forms`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress
from stillhouse.core.errors import BadInput
from stillhouse.core.types import ValueArray
from stillhouse.corpora.published.msmarco import marco_pairs
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.cleaning import clean
from stillhouse.corpora.reading.forms import FORMS, ScoredRow, candidates, form_roles, parse_row
from stillhouse.corpora.reading.languages import recognised
from stillhouse.corpora.reading.row_limit import Spool, distinct, in_blocks
from stillhouse.corpora.reading.rows import Rejected, Row, Table, remedies
from stillhouse.corpora.reading.schema import (
    CONTRADICTION,
    ENTAILMENT,
    MEANINGS,
    NAMED,
    NEUTRAL,
    UNUSED,
    Schema,
    as_names,
    roles,
    value_of,
)
from stillhouse.corpora.reading.sources import Reading, hub_name, list_files
from stillhouse.corpora.reading.understood import Understood
from stillhouse.corpora.tables import ColumnWriter, write_rows
from stillhouse.values.data import Examples

VERSION, SCORED_VERSION = 4, 3
SCORES = "scores"
SCORED = Schema(owner="scores")
_KIND, _SCORED = "file of labelled text", "file of scores"
_LOOKED_AT = 200
_NO_LABEL = ("", "-", "-1")
_AT_ONCE = 16_384
"""Rows whose texts are numbered at once."""

Triple = tuple[str, str, tuple[str, ...]]
Rows = Iterator[Triple | Rejected]


def read_labelled(
    workspace: Workspace,
    source: str,
    *,
    negatives: int = 0,
    limit: int | None = None,
    refresh: bool = False,
    schema: Schema = NAMED,
) -> Examples:
    """Read labelled text as examples, at the first call and again when a file or an option has changed.

    Columns are recognised by their usual names (``query``, ``anchor``, ``premise``, ``sentence1``, …); two
    columns with other names are taken in their order. With a label column the rows are NLI pairs: the
    entailments of a premise become passages, and its contradictions their hard negatives. Files with hard
    negatives of FlagEmbedding and Tevatron give a pair for each positive.

    Args:
        workspace: Workspace for the tables.
        source: JSON lines, CSV, TSV or Parquet: a file, a folder or a glob; ``hf:name[:config][:split]``; or
            MS MARCO's folder, judgements or triples (`corpora.published.msmarco`).
        negatives: Number of hard negatives per row to take from the source (K); rows with fewer are set
            aside. 0 takes none.
        limit: Number of rows to take, see `counting`; None takes all.
        refresh: Ignore the cache and read it again.
        schema: The columns and labels whose names do not tell it.

    Returns:
        ``query``, ``passage`` and, if the source has them and K > 0, ``negatives``, (N, K), which are rows of
        the passages' table.

    Raises:
        BadInput: If the source cannot be read, its columns or labels are not understood, or no row is usable.
    """
    marco = None if hub_name(source) else marco_pairs(source)
    reading = _Reading(source, _KIND, schema, limit)
    paths = (marco.pairs, *marco.texts) if marco else ()
    files = [each for path in paths for each in list_files(str(path)).files]

    def read() -> Examples:
        tables, by_ids = reading.tables(), marco is not None and bool(marco.texts)
        if marco is not None:
            # MS MARCO's triples are read no further than needed: there are 4 · 10^8 of them.
            reading.taking.stream = marco.has_negatives
            rows = marco.rows(reading.taking, negatives=negatives > 0)
            columns = ["query", "passage", *(["negative"] if marco.has_negatives else [])]
            tables = iter([Table(source, "MS MARCO's files", columns, lambda _: enumerate(rows))])
        triples = reading.kept(tables, negatives, all_of_them=by_ids)
        made = write_triples(workspace, source, triples)
        reading.of_triples(triples, by_ids=by_ids).say()
        return made

    options = {"negatives": negatives, "limit": limit or 0, "schema": schema}
    note = note_path(
        workspace,
        "labelled",
        {"version": VERSION, "source": source, "files": files or reading.found.files, **options},
    )
    return read_once(workspace, note, read, refresh=refresh)


class _Reading(Reading[Triple]):
    """The rows of a source on their way to triples, and how many of them went where."""

    def kept(self, tables: Iterable[Table], negatives: int, *, all_of_them: bool) -> Spool[Triple]:
        """Return the distinct triples that are taken; with ``all_of_them`` the tables have no others.

        Raises:
            BadInput: There is none.
        """
        self._negatives = negatives
        rows = self._triples(tables)
        taken = self.usable(rows) if all_of_them else self.taken(rows, lambda row: repr(row).encode())
        kept = Spool(distinct(taken))
        if not self.rows:
            raise BadInput(f"labelled text must not be empty, but {self.source} is.")
        if not kept:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in self.aside.most_common())
            raise BadInput(
                f"labelled text must have at least one usable row, but of the {self.rows:,} rows of "
                f"{self.source} none is: {reasons} (negatives={self._negatives}). Check the "
                f"columns and labels, or lower --negatives.{remedies(self.aside)}"
            )
        return kept

    def of_triples(self, kept: Spool[Triple], *, by_ids: bool) -> Understood:
        """Say where the rows went."""
        query, passage, hard = next(iter(kept))
        self.examples |= {"query": query, "passage": passage, "negatives": hard[0] if hard else ""}
        first = (row[:2] for row in islice(kept, _LOOKED_AT))
        self.language = self.language or recognised(chain.from_iterable(first))
        taking = self.taking
        aside = sum(self.aside.values())
        pairs = self.rows - aside if by_ids else taking.read
        note = "" if pairs + aside == self.rows else f"{self.rows:,} rows make {pairs:,} pairs"
        return self.understood(len(kept), taking.taken - len(kept), note=note)

    def _triples(self, tables: Iterable[Table]) -> Rows:
        inference = _Inference(self.schema, self.source, self._negatives, self.labels)
        for table in tables:
            formed = next((names for names in FORMS if names[0] in table.columns), None)
            if formed or not table.columns:
                shown = form_roles(table.columns, formed) if formed else {}
                self.opened(table, shown, [name for name in table.columns if name not in shown.values()])
                yield from self._each(table, self._formed)
                continue
            named = roles(table.columns, self.schema, self.source)
            shown = {role: ", ".join(names) for role, names in named.items() if names and role != UNUSED}
            self.opened(table, shown, named[UNUSED])
            if named["label"]:
                yield from self._each(table, partial(inference.add, table=table, named=named))
            else:
                yield from self._each(table, partial(self._plain, named=named))
        yield from inference.triples()

    def _each(self, table: Table, parse: Callable[[Row, str], Rows]) -> Rows:
        for number, row in self.rows_of(table):
            if isinstance(row, Rejected):
                yield row
            else:
                yield from parse(row, table.where(number))

    def _formed(self, row: Row, where: str) -> Rows:
        query, positives, negatives = candidates(row, where, scored=False)
        for passage, _ in positives:
            yield self._checked(query, passage, [text for text, _ in negatives], listed=True)

    def _plain(self, row: Row, where: str, *, named: Mapping[str, Sequence[str]]) -> Rows:
        given = [row.get(name) for name in named["negatives"]]
        flat = list(chain.from_iterable(value if isinstance(value, list) else [value] for value in given))
        query, passage = row.get(named["query"][0]), row.get(named["passage"][0])
        yield self._checked(query, passage, flat, listed=bool(given))

    def _checked(self, query: Any, passage: Any, hard: Sequence[Any], *, listed: bool) -> Triple | Rejected:
        asked, answer = _text(query), _text(passage)
        wrong = tuple(text for text in map(_text, hard) if text)[: self._negatives]
        if not asked or not answer:
            return Rejected(repr((query, passage)), f"without {'passage' if asked else 'query'}")
        if listed and len(wrong) < self._negatives:
            return Rejected(asked, f"with fewer than {self._negatives} hard negatives")
        return asked, answer, wrong


class _Inference:
    """Pairs of natural language inference: each entailment of a premise with its contradictions in turn."""

    def __init__(self, schema: Schema, source: str, negatives: int, counts: Counter[str]) -> None:
        stated = as_names(schema.labels, "pairs.labels")
        named = {name: name for name in MEANINGS} if not stated else {}
        self._meanings = named | {label.lower(): str(meaning) for label, meaning in stated.items()}
        self._source, self._negatives, self._counts = source, negatives, counts
        self._unknown = set[str]()
        self._premises: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: Row, _: str, *, table: Table, named: Mapping[str, Sequence[str]]) -> Rows:
        """Hold a row; yield it where no pair comes of it."""
        query, passage, label = (named[role][0] for role in ("query", "passage", "label"))
        given = value_of(row, label, table)
        kind = self._meanings.get(given.lower(), "")
        if not kind and given not in _NO_LABEL:
            self._unknown.add(given)
        self._counts[given if kind in ("", given.lower()) else f"{given} ({kind})"] += 1
        premise, text = _text(row.get(query)), _text(row.get(passage))
        if not premise or not text or not kind:
            yield Rejected(premise, "without label" if premise and text else "without a sentence")
            return
        if kind != NEUTRAL:
            self._premises[premise][kind].append(text)
        if kind != ENTAILMENT:
            used = kind == CONTRADICTION and self._negatives
            yield Rejected(text, f"{kind} ({'hard negatives' if used else 'not used'})")

    def triples(self) -> Rows:
        """Yield the pairs.

        Raises:
            BadInput: A label has no meaning.
        """
        if self._unknown:
            unknown = ", ".join(sorted(self._unknown)[:10])
            raise BadInput(
                f"the labels of {self._source} must be entailment, neutral and contradiction, or have a "
                f"meaning that is stated, but were found without one: {unknown}. Say what they mean, such as "
                '--set pairs.labels="0: contradiction, 1: entailment, 2: neutral", which are pairs, --set '
                'pairs.positive="label = 1", or that they are not used, --set pairs.columns="unused: label".'
            )
        for premise, kinds in self._premises.items():
            wrong = kinds[CONTRADICTION] if self._negatives else []
            for index, right in enumerate(kinds[ENTAILMENT]):
                if self._negatives and not wrong:
                    yield Rejected(right, "entailment without a contradiction")
                else:
                    yield premise, right, (wrong[index % len(wrong)],) if wrong else ()


def _text(value: Any) -> str:
    return clean(value) if isinstance(value, str) else ""


def write_triples(
    workspace: Workspace,
    source: str,
    triples: Iterable[Triple],
    *,
    label: str = "labelled",
    values: Mapping[str, ValueArray] | None = None,
) -> Examples:
    """Write triples, which have equally many hard negatives, as examples; equal texts get one id."""
    found: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    with (
        ColumnWriter(workspace, f"{label}-queries") as asked,
        ColumnWriter(workspace, f"{label}-passages") as told,
    ):
        for part in in_blocks(triples, _AT_ONCE):
            queries = asked.rows([query for query, _, _ in part])
            passages = told.rows([text for _, passage, hard in part for text in (passage, *hard)])
            found.append((queries, passages.reshape(len(part), -1)))
        table = told.publish({label: source})
        columns = {"query": asked.publish({label: source}), "passage": table}
    rows_N, rows_NK = (np.concatenate(side) for side in zip(*found, strict=True))
    rows = {"query": rows_N, "passage": rows_NK[:, 0]}
    if rows_NK.shape[1] > 1:
        columns["negatives"], rows["negatives"] = table, rows_NK[:, 1:]
    return write_rows(workspace, columns, rows, label, values=values)


def read_scored(
    workspace: Workspace,
    source: str,
    *,
    negatives: int = 0,
    limit: int | None = None,
    refresh: bool = False,
    schema: Schema = SCORED,
) -> Examples:
    """Read scored text as examples, as `read_labelled` does labelled text, with the same arguments.

    A row with several positives gives one example for each of them, with the same negatives. Of these the
    first K are taken, and rows with fewer are set aside; 0 takes as many as the row with the fewest has.

    Returns:
        ``query``, ``passage`` and ``negatives``, (N, K), which are rows of the passages' table; value
        ``scores``, (N, 1 + K), the passage's first.

    Raises:
        BadInput: If the source cannot be read or its columns are not recognised; if a row has an empty text,
            no candidates, another number of scores than of passages, or a score that is not finite; or if no
            row has enough negatives.
    """
    reading = Reading[ScoredRow](source, _SCORED, schema, limit, distinct=False)

    def read() -> Examples:
        widths = set[int]()
        rows = _scored_rows(reading, negatives, widths)
        kept = Spool(reading.taken(rows, lambda row: repr((row.query, row.passages)).encode()))
        if not widths:
            raise BadInput(f"scored text must not be empty, but {source} is.")
        if not kept:
            raise BadInput(
                f"scored text must have rows with {negatives} hard negatives, but those of {source} have at "
                f"most {max(widths)}. Lower scores.negatives, or set it to 0."
            )
        width = negatives or min(len(row.passages) for row in kept) - 1
        cut = sum(len(row.passages) - 1 - width for row in kept)
        further = f", {cut:,} further negatives are left out" if cut else ""
        query, passages, _ = next(iter(kept))
        reading.examples |= zip(("query", "passage", "negatives"), (query, *passages), strict=False)
        scores = (score for row in kept for score in row.scores[: 1 + width])
        values = {SCORES: np.fromiter(scores, np.float32).reshape(-1, 1 + width)}
        triples = ((query, passages[0], passages[1 : 1 + width]) for query, passages, _ in kept)
        made = write_triples(workspace, source, triples, label="scored", values=values)
        reading.understood(len(kept), note=f"{width} hard negatives each{further}").say()
        return made

    options = {"negatives": negatives, "limit": limit or 0, "schema": schema}
    note = note_path(
        workspace,
        "scored",
        {"version": SCORED_VERSION, "source": source, "files": reading.found.files, **options},
    )
    return read_once(workspace, note, read, refresh=refresh)


def _scored_rows(
    reading: Reading[ScoredRow], negatives: int, widths: set[int]
) -> Iterator[ScoredRow | Rejected]:
    """Read the examples of a source, and add their numbers of hard negatives to ``widths``.

    Columns that have a stated role are called by it. Examples with fewer negatives are set aside.
    """
    schema = reading.schema
    progress = Progress("reading scored text", "rows")
    for table in reading.tables():
        stated = schema.stated(table.columns, reading.source)
        unused = stated.pop(UNUSED, [])
        role_of = {names[0]: role for role, names in stated.items()}
        roles = {role_of.get(name, name): name for name in table.columns if name not in unused}
        reading.opened(table, roles, unused)
        for number, row in reading.rows_of(table):
            if reading.rows % 1000 == 0:
                progress(reading.rows, None)
            if not isinstance(row, Rejected):
                named = {role_of.get(name, name): value for name, value in row.items() if name not in unused}
                for example in parse_row(named, table.where(number)):
                    width = len(example.passages) - 1
                    widths.add(width)
                    few = Rejected(example.query, f"with fewer than {negatives} hard negatives")
                    yield few if width < negatives else example
            elif row.reason.endswith("(not used)"):
                yield row
            else:
                raise BadInput(
                    f"{table.where(number)} must be one JSON object, but is not: {row.reason}: {row.raw:.60}."
                )
