"""Rows with hard negatives as common tools write them, with scores or without.

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.cleaning import clean
from stillhouse.corpora.reading.rows import Row

_QUERIES = ("query", "anchor", "question")
_POSITIVES = ("positive", "passage", "document")
_LABELS = ("score", "scores", "label", "labels")
FORMS = (("pos", "neg"), ("positive_passages", "negative_passages"))
"""Columns of the forms of FlagEmbedding and Tevatron, by whose first one they are recognised."""
_FORMS = (
    "query, positive, negative and score (sentence-transformers); query, pos, neg, pos_scores and neg_scores "
    "(FlagEmbedding); or query, positive_passages and negative_passages (Tevatron)"
)

Candidate = tuple[Any, Any]
"""A passage and its score, as they are in the file."""
Candidates = tuple[Any, list[Candidate], list[Candidate]]
"""A query, its positives and its negatives."""


class ScoredRow(NamedTuple):
    """A query with passages, the positive first, and the score of each."""

    query: str
    passages: tuple[str, ...]
    scores: tuple[float, ...]


def parse_row(row: Row, where: str) -> list[ScoredRow]:
    """Parse a row of any of the three forms: one example for each of its positives.

    Raises:
        BadInput: As `read_scored`.
    """
    formed = any(name in row for name, _ in FORMS)
    query, positives, negatives = candidates(row, where) if formed else _stock(row, where)
    return [_checked(query, [positive, *negatives], where) for positive in positives]


def candidates(row: Row, where: str, *, scored: bool = True) -> Candidates:
    """The query, positives and negatives of a row of FlagEmbedding or Tevatron, with scores where ``scored``.

    Raises:
        BadInput: It lacks the query, the positives, or what it must have.
    """
    form = next(names for names in FORMS if names[0] in row)
    positives, negatives = (_listed(row, name, where, scored) for name in form)
    return _first_of(row, _QUERIES, where), positives, negatives


def form_roles(columns: Sequence[str], form: Sequence[str]) -> dict[str, str]:
    """The columns of one of `FORMS` by the roles of pairs."""
    query = [name for name in _QUERIES if name in columns][:1]
    there = [name for name in form if name in columns]
    return dict(zip(("query", "passage", "negatives"), [*query, *there], strict=False))


def _listed(row: Row, name: str, where: str, scored: bool) -> list[Candidate]:
    """The candidates of a column, with the scores beside or in them."""
    given = _list_of(row, name, where, scored)
    texts = [_titled(each) if isinstance(each, Mapping) else each for each in given]
    if not scored:
        return [(text, 0.0) for text in texts]
    if name not in FORMS[1]:
        return _paired(texts, _list_of(row, f"{name}_scores", where, scored), where, name)
    scores = [each.get("score") if isinstance(each, Mapping) else None for each in given]
    if None in scores:
        raise BadInput(
            f"{where} must have a score for every passage, but one of its {name} has none. Score the file "
            "with a reranker first."
        )
    return _paired(texts, scores, where, name)


def _titled(passage: Mapping[str, Any]) -> str:
    parts = (passage.get("title"), passage.get("text"))
    return " ".join(part for part in parts if isinstance(part, str) and part)


def _stock(row: Row, where: str) -> Candidates:
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
    positives, *others = _paired([positive, *negatives], scores, where, "passages")
    return query, [positives], others


def _paired(texts: list[Any], scores: list[Any], where: str, what: str) -> list[Candidate]:
    if len(scores) != len(texts):
        raise BadInput(
            f"{where} must have one score per passage, but has {len(scores)} scores for {len(texts)} {what}. "
            "Score the file again."
        )
    return list(zip(texts, scores, strict=True))


def _checked(query: Any, candidates: Sequence[Candidate], where: str) -> ScoredRow:
    """Check the texts and scores of an example."""
    given = (query, *(text for text, _ in candidates))
    texts = [clean(text) if isinstance(text, str) else "" for text in given]
    if not all(texts):
        raise BadInput(f"{where} must have no empty text, but its query or one of its passages is empty.")
    return ScoredRow(texts[0], tuple(texts[1:]), tuple(_finite(score, where) for _, score in candidates))


def _finite(score: Any, where: str) -> float:
    number = math.nan
    if isinstance(score, int | float | str) and not isinstance(score, bool):
        with suppress(ValueError, OverflowError):  # files with plain columns have texts alone
            number = float(score)
    if not math.isfinite(number):
        raise BadInput(
            f"{where} must have finite numbers as scores, but one is {score!r}. Score the file again, in "
            "full precision."
        )
    return number


def _list_of(row: Row, name: str, where: str, scored: bool) -> list[Any]:
    value = row.get(name)
    if value is None and not scored and name.startswith("neg"):
        return []
    if value is None:
        raise BadInput(
            f"{where} must have the column {name}, but has {', '.join(row)}. Scored text has the "
            f"columns {_FORMS}."
        )
    if not isinstance(value, list):
        raise BadInput(f"{where} must have a list in the column {name}, but has {value!r:.60}.")
    if scored:
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


def _number(name: str) -> tuple[int, str]:
    """Order ``negative_2`` before ``negative_10``."""
    digits = name.rpartition("_")[2]
    return (int(digits) if digits.isdigit() else 0), name
