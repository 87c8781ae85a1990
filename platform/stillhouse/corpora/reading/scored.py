"""Scored text: queries with a passage, hard negatives and a reranker's score of each, from common files.

Three forms are read as they are, recognised by their columns:

* sentence-transformers: ``query``, ``positive``, and ``negative``, ``negative_1``, ``negative_2``, … or a
  list ``negatives``; ``score``, ``scores``, ``label`` or ``labels`` holds one score per passage, the
  positive's first, or the margins: the positive's score less that of each negative, which for one negative is
  a plain number.
* FlagEmbedding: ``query``, the lists ``pos`` and ``neg``, and ``pos_scores`` and ``neg_scores``.
* Tevatron: ``query``, and ``positive_passages`` and ``negative_passages``, lists of objects with ``title``,
  ``text`` and ``score``. A title is put in front of its text.

Margins m are kept as the scores 0 and −m. Every loss on scores here compares those of one query with each
other, so that a constant added to them changes nothing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.core.errors import BadInput
from stillhouse.core.json_text import parse_json
from stillhouse.corpora.reading.corpus import hub_name, list_files
from stillhouse.corpora.reading.counting import Taking
from stillhouse.corpora.reading.ingest import note_path, read_once
from stillhouse.corpora.reading.labelled import stream_rows, write_triples
from stillhouse.corpora.reading.rows import open_text
from stillhouse.corpora.reading.sentences import clean
from stillhouse.values.data import Examples

VERSION = 2
SCORES = "scores"
_QUERIES = ("query", "anchor", "question")
_POSITIVES = ("positive", "passage", "document")
_LABELS = ("score", "scores", "label", "labels")
_TEVATRON = ("positive_passages", "negative_passages")
_FORMS = (
    "query, positive, negative and score (sentence-transformers); query, pos, neg, pos_scores and neg_scores "
    "(FlagEmbedding); or query, positive_passages and negative_passages (Tevatron)"
)

Candidate = tuple[Any, Any]
"""A passage and its score, as they are in the file."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class ScoredRow:
    """A query with passages and their scores.

    Attributes:
        query: The query.
        passages: The positive, and then its hard negatives.
        scores: The score of each passage.
    """

    query: str
    passages: tuple[str, ...]
    scores: tuple[float, ...]


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

    def read() -> Examples:
        taking = Taking[ScoredRow](limit, stream=hub_name(source) is not None, distinct=False)
        rows_with = Counter[int]()
        rows = _with_negatives(_all_rows(source, [file.path for file in files]), negatives, rows_with)
        kept = list(taking.of(rows, lambda row: repr((row.query, row.passages)).encode()))
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
        return write_triples(
            workspace,
            source,
            [(row.query, row.passages[0], row.passages[1 : 1 + width]) for row in kept],
            given=True,
            label="scored",
            values={SCORES: np.array([row.scores[: 1 + width] for row in kept], np.float32)},
        )

    return read_once(workspace, note, read, refresh=refresh)


def parse_row(row: Row, where: str) -> list[ScoredRow]:
    """Parse a row of any of the three forms: one example for each of its positives.

    Args:
        row: The row.
        where: Which row of which file it is, for messages.

    Raises:
        BadInput: As `read_scored`.
    """
    if "positive_passages" in row:
        positives, negatives = (_passages(row, name, where) for name in _TEVATRON)
    elif "pos" in row:
        positives, negatives = (_listed(row, name, where) for name in ("pos", "neg"))
    else:
        return [_stock_row(row, where)]
    query = _first_of(row, _QUERIES, where)
    return [_scored(query, [positive, *negatives], where) for positive in positives]


def _passages(row: Row, name: str, where: str) -> list[Candidate]:
    """The candidates of a column of Tevatron's."""
    found = []
    for passage in _list_of(row, name, where):
        if not isinstance(passage, Mapping) or passage.get("score") is None:
            raise BadInput(
                f"{where} must have a score for every passage, but one of its {name} has none. Score the "
                "file with a reranker first."
            )
        parts = (passage.get("title"), passage.get("text"))
        found.append((" ".join(part for part in parts if isinstance(part, str) and part), passage["score"]))
    return found


def _listed(row: Row, name: str, where: str) -> list[Candidate]:
    """The candidates of a column of FlagEmbedding's, with the scores of its twin."""
    texts, scores = (_list_of(row, each, where) for each in (name, f"{name}_scores"))
    if len(texts) != len(scores):
        raise _of_another_number(where, len(scores), len(texts), name)
    return list(zip(texts, scores, strict=True))


def _stock_row(row: Row, where: str) -> ScoredRow:
    """Parse a row of sentence-transformers, whose scores may be margins."""
    query, positive = _first_of(row, _QUERIES, where), _first_of(row, _POSITIVES, where)
    names = sorted((name for name in row if name.startswith("negative")), key=_number)
    given = [row[name] for name in names if row[name] is not None]
    negatives = list(chain.from_iterable(each if isinstance(each, list) else [each] for each in given))
    stated = next((row[name] for name in _LABELS if row.get(name) is not None), None)
    if not names or stated is None:
        raise _unknown_form(row, where)
    _require_some(negatives, names[0], where)
    scores = list(stated) if isinstance(stated, list) else [stated]
    if len(scores) == len(negatives):
        scores = [0.0, *(-_finite(margin, where) for margin in scores)]
    if len(scores) != 1 + len(negatives):
        raise _of_another_number(where, len(scores), 1 + len(negatives), "passages")
    return _scored(query, list(zip([positive, *negatives], scores, strict=True)), where)


def _scored(query: Any, candidates: Sequence[Candidate], where: str) -> ScoredRow:
    """Check the texts and scores of an example."""
    texts = [
        clean(text) if isinstance(text, str) else "" for text in (query, *(text for text, _ in candidates))
    ]
    if not all(texts):
        raise BadInput(f"{where} must have no empty text, but its query or one of its passages is empty.")
    return ScoredRow(texts[0], tuple(texts[1:]), tuple(_finite(score, where) for _, score in candidates))


def _is_finite(score: float) -> bool:
    try:
        return math.isfinite(score)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _finite(score: Any, where: str) -> float:
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if isinstance(score, str):  # Files with plain columns have nothing else.
        try:
            score, number = float(score), True
        except ValueError:
            number = False
    if not number or not _is_finite(score):
        raise BadInput(
            f"{where} must have finite numbers as scores, but one is {score!r}. Score the file again, in "
            "full precision."
        )
    return float(score)


def _list_of(row: Row, name: str, where: str) -> list[Any]:
    value = row.get(name)
    if value is None:
        raise BadInput(
            f"{where} must have the column {name}, but has {', '.join(row)}. Scored text has the "
            f"columns {_FORMS}."
        )
    if not isinstance(value, list):
        raise BadInput(f"{where} must have a list in the column {name}, but has {value!r:.60}.")
    _require_some(value, name, where)
    return value


def _require_some(value: Sequence[Any], name: str, where: str) -> None:
    if not value:
        raise BadInput(f"{where} must have candidates, but its column {name} is empty. Leave the row out.")


def _first_of(row: Row, names: Sequence[str], where: str) -> Any:
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None:
        raise _unknown_form(row, where)
    return row[name]


def _unknown_form(row: Row, where: str) -> BadInput:
    return BadInput(
        f"scored text must have the columns {_FORMS}, but {where} has {', '.join(map(str, row)) or 'none'}. "
        "Rename them."
    )


def _of_another_number(where: str, scores: int, passages: int, what: str) -> BadInput:
    return BadInput(
        f"{where} must have one score per passage, but has {scores} scores for {passages} {what}. Score the "
        "file again."
    )


def _number(name: str) -> tuple[int, str]:
    """Order ``negative_2`` before ``negative_10``."""
    digits = name.rpartition("_")[2]
    return (int(digits) if digits.isdigit() else 0), name


def _with_negatives(
    rows: Iterable[ScoredRow], negatives: int, rows_with: Counter[int]
) -> Iterator[ScoredRow]:
    """Yield the examples with enough hard negatives; all are counted by the number of theirs."""
    for row in rows:
        rows_with[len(row.passages) - 1] += 1
        if len(row.passages) > negatives:
            yield row


def _all_rows(source: str, files: Sequence[str]) -> Iterator[ScoredRow]:
    """Read the examples of a source."""
    progress = Progress("reading scored text", "rows")
    for number, (where, row) in enumerate(_located_rows(source, files), start=1):
        yield from parse_row(row, where)
        if number % 1000 == 0:
            progress(number, None)


def _located_rows(source: str, files: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a source, each with where it stands."""
    lines = [file for file in files if file.lower().removesuffix(".gz").endswith((".jsonl", ".json"))]
    for file in lines:
        yield from _json_rows(source, file)
    others = [file for file in files if file not in lines]
    if others or not files:
        for number, row in enumerate(stream_rows(source, others), start=1):
            yield f"row {number} of {source}", row


def _json_rows(source: str, file: str) -> Iterator[tuple[str, Row]]:
    """Read a file with one object per line, whose columns may differ from row to row."""
    system, _ = list_files(source, "file of scores")
    try:
        with open_text(system, file, "utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    where = f"line {number} of {file}"
                    yield where, _object(line, where)
    except (OSError, EOFError) as error:
        raise BadInput(f"{file} must be readable, but reading it failed: {error}.") from error


def _object(line: str, where: str) -> Row:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise BadInput(f"{where} must be one JSON object, but is not: {error}.") from None
    if not isinstance(row, dict):
        raise BadInput(f"{where} must be one JSON object, but is {line.strip():.60}.")
    return row


def _say(source: str, taken: str, kept: Sequence[ScoredRow], width: int, shorter: int) -> None:
    """Print what was read, and how much of it is left out."""
    cut = sum(len(row.passages) - 1 - width for row in kept)
    say(
        f"  {source}: {taken}, {width} hard negatives each"
        + (f", {shorter:,} rows with fewer are left out" if shorter else "")
        + (f", {cut:,} further negatives are left out" if cut else "")
    )
