"""The meaning of columns and labels: by their names or as it is stated, never by a guess."""

import json
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.corpora.reading.languages import check_language
from stillhouse.corpora.reading.rows import PLAIN, Numbered, Rejected, Row, Table, missing

ENTAILMENT, CONTRADICTION, NEUTRAL = MEANINGS = ("entailment", "contradiction", "neutral")
_PAIRS = {
    "query": ("query", "anchor", "premise", "sentence1", "sent0", "question", "s1"),
    "passage": (
        *("passage", "positive", "hypothesis", "sentence2", "sent1", "answer", "document", "s2"),
        "context",
    ),
    "negatives": ("negatives", "negative", "hard_neg", "hard_negatives", "neg"),
    "label": ("label", "gold_label", "labels"),
    "score": ("score", "scores", "similarity", "similarity_score", "relevance", "is_duplicate"),
}
USUAL_TEXT = ("text", "sentence")
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "sentences": {"text": USUAL_TEXT},
    "pairs": _PAIRS,
    "scores": dict.fromkeys(
        ("query", "positive", "negatives", "score", "pos", "neg", "pos_scores", "neg_scores"), ()
    ),
    "parallel": {"source": ("english", "source"), "target": ("non_english", "target")},
}
"""Names of columns by kind of data and role."""
UNUSED = "unused"
_COMPARED = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq, "=": operator.eq,
    ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(.+?)\s*(>=|<=|!=|==|=|>|<)\s*(.+?)\s*")
_NO_PAIR = ("id", "_id", "idx", "index", "text", "title")


def as_names(text: str, field: str) -> dict[str, Any]:
    """Parse ``query: question, passage: answer``, with colons or equals signs, or the same as JSON.

    Raises:
        BadInput: It is neither.
    """
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError:
            raise BadInput(f"{field} must be names and their values, but got {text!r}.") from None
    pairs = [re.split(r"\s*[:=]\s*", part.strip(), maxsplit=1) for part in text.split(",") if part.strip()]
    good = all(len(pair) == 2 and all(pair) for pair in pairs)
    require(good, f"{field} must be such as `name: value, name: value`", got=text)
    return {name: value for name, value in pairs}


@dataclass(frozen=True)
class Schema:
    """Columns, labels and form of files that do not state them; the same for every kind of data.

    Attributes:
        columns: Column of each role: ``query: question, passage: answer``; ``unused`` names one that is not
            used, or a list of them. In a file without a header columns are called 1, 2, ….
        labels: Meaning of each label: ``0: contradiction, 1: entailment, 2: neutral``.
        positive: Which rows are used: ``score >= 4``.
        delimiter: Character between the cells of a text file, or ``tab``; empty recognises it.
        header: Whether the first line has the names of the columns, ``yes`` or ``no``; empty recognises it.
        language: Language of the texts, such as ``de``; empty recognises it.
        owner: Kind of data that the fields are of, for messages.
    """

    columns: str = ""
    labels: str = ""
    positive: str = ""
    delimiter: str = ""
    header: str = ""
    language: str = field(default="", metadata={"identity": "unless_default"})
    owner: str = field(default="pairs", compare=False, metadata={"identity": False})

    def check(self) -> None:
        """Refuse what cannot be understood.

        Raises:
            BadInput: A role, a meaning or a language is unknown, or the condition is none.
        """
        known = (*_NAMES[self.owner], UNUSED)
        for role in as_names(self.columns, f"{self.owner}.columns"):
            rule = f"{self.owner}.columns must name roles: {', '.join(known)}"
            require(role in known, rule, role=role, remedy=nearest(role, list(known)))
        for label, meaning in as_names(self.labels, f"{self.owner}.labels").items():
            rule = f"{self.owner}.labels must mean one of {', '.join(MEANINGS)}"
            require(meaning in MEANINGS, rule, **{"label": label, "meaning": meaning})
        rule = f"{self.owner}.labels must be empty: only pairs have labels"
        require(not self.labels or self.owner == "pairs", rule, labels=self.labels)
        good = not self.positive or _CONDITION.fullmatch(self.positive) is not None
        require(good, f"{self.owner}.positive must be such as `score >= 4`", positive=self.positive)
        one = self.delimiter in ("", "tab") or len(self.delimiter) == 1
        require(one, f"{self.owner}.delimiter must be one character, or tab", delimiter=self.delimiter)
        require(self.header in ("", "yes", "no"), f"{self.owner}.header in ('yes', 'no')", header=self.header)
        check_language(self.language, f"{self.owner}.language")

    @property
    def condition(self) -> tuple[str, str, str] | None:
        """The column, comparison and value of `positive`."""
        found = _CONDITION.fullmatch(self.positive)
        return (found[1], found[2], found[3]) if found else None

    def stated(self, columns: Sequence[str], source: str) -> dict[str, list[str]]:
        """The columns that `columns` names for each role.

        Raises:
            BadInput: One of them, or that of `positive`, does not exist.
        """
        found = self.named()
        condition = [self.condition[0]] if self.condition else []
        for name in [*chain.from_iterable(found.values()), *condition]:
            near = nearest(name, list(columns))
            require(name in columns, f"{source} must have the column {name!r}", columns=columns, remedy=near)
        return found

    def named(self) -> dict[str, list[str]]:
        """The names in `columns`, by role."""
        named = as_names(self.columns, f"{self.owner}.columns")
        listed = {role: names if isinstance(names, list) else [names] for role, names in named.items()}
        return {role: list(map(str, names)) for role, names in listed.items()}

    def rows(self, table: Table, column: str | None = None) -> Numbered:
        """The rows of a table, possibly with the given column alone; those not ``positive`` are rejected."""
        condition, unused = self.condition, Rejected("", f"not {self.positive} (not used)")
        for number, row in table.rows(None if condition else column):
            used = condition is None or isinstance(row, Rejected) or _meets(row, condition, table)
            yield number, row if used else unused


NAMED = Schema()
"""Every column and label means what its name says."""


def text_column(table: Table, schema: Schema, column: str = "") -> tuple[str, bool]:
    """Choose the column with the text: the given one, the stated one, one of a usual name, or the only one.

    Returns:
        Its name, and whether nothing but its being the only one speaks for it.

    Raises:
        BadInput: A stated column does not exist, none is stated and it is not clear which one it is, or it
            does not hold text.
    """
    if table.kind in PLAIN:
        if given := column or schema.columns:
            raise BadInput(f"{table.source} is {table.form}, and has no column {given!r}. Omit the column.")
        return table.columns[0], False
    if not table.columns:  # None of the first rows is one.
        return column or USUAL_TEXT[0], False
    if column and column not in table.columns:
        near = nearest(column, table.columns)
        raise BadInput(
            f"{table.source} has no column {column!r}. Its columns: {', '.join(table.columns)}. {near}"
        )
    stated = schema.stated(table.columns, table.source).get("text", [])
    named = [column] if column else stated[:1] or [name for name in USUAL_TEXT if name in table.columns]
    picked = named or table.columns
    if len(picked) != 1:
        raise BadInput(
            f"{table.source} must have one column, or one named text, but has "
            f"{', '.join(table.columns)}. Say which one holds the text (column)."
        )
    kind = str(table.types.get(picked[0], "string"))
    if "string" not in kind or kind.startswith(("list", "struct", "map")):
        raise BadInput(f"column {picked[0]} of {table.source} must hold text, but has the type {kind}.")
    return picked[0], not named


def roles(columns: list[str], schema: Schema, source: str) -> dict[str, list[str]]:
    """Find the columns of the query, the passage, the negatives and the label, and those not used.

    Raises:
        BadInput: A role has two columns or none, a stated column does not exist, or a score or judgement is
            beside the pairs that nothing explains.
    """
    stated = schema.stated(columns, source)
    condition = schema.condition
    taken = [*chain.from_iterable(stated.values()), *([condition[0]] if condition else [])]
    free = [name for name in columns if name not in taken]
    found = {
        role: stated.get(role) or [name for usual in names for name in free if name.lower() == usual]
        for role, names in _PAIRS.items()
    }
    numbered = [
        name for name in free if name.lower().startswith(("negative_", "neg_")) and name[-1:].isdigit()
    ]
    found["negatives"] = found["negatives"] or numbered
    _by_elimination(found, free)
    for role in ("query", "passage"):
        if len(found[role]) != 1:
            which = (
                f"{len(found[role])} of them could be the {role}" if found[role] else f"none is the {role}"
            )
            raise BadInput(
                f"labelled text must have the columns query and passage, but {source} has the columns "
                f"{', '.join(columns)}, and {which}. Rename them, or say which: --set "
                'pairs.columns="query: NAME, passage: NAME"; unused: NAME names one that is not used.'
            )
    if found["score"] and not found["negatives"] and "score" not in stated:
        name = found["score"][0]
        raise BadInput(
            f"{source} has the column {name} beside its pairs, which must be explained: its rows may be no "
            f'pairs. Say which are, such as --set pairs.positive="{name} >= 1", or --set '
            f'pairs.columns="unused: {name}".'
        )
    used = [name for role in ("query", "passage", "negatives") for name in found[role]]
    found["label"] = [] if found["negatives"] else found["label"][:1]
    used += [*found["label"], *([condition[0]] if condition else [])]
    return {**found, UNUSED: [name for name in columns if name not in used]}


def _by_elimination(found: dict[str, list[str]], free: Sequence[str]) -> None:
    """Take two columns of unknown names in their order; ``text`` goes with a query or a passage."""
    claimed = [name for names in found.values() for name in names]
    others = [name for name in free if name not in claimed]
    roles = [role for role in ("query", "passage") if not found[role]]
    text = [name for name in others if name.lower() == "text"]
    plain = not any(name.lower() in _NO_PAIR for name in others)
    if len(roles) == 2 and len(others) == 2 and plain:
        found["query"], found["passage"] = others[:1], others[1:]
    elif len(roles) == 1 and len(text) == 1:
        found[roles[0]] = text


def value_of(row: Row, column: str, table: Table) -> str:
    """A label or score as text; a number with a name of the file's is that name."""
    value = row.get(column)
    if missing(value):
        return ""
    names = table.names.get(column)
    if names and isinstance(value, int) and 0 <= value < len(names):
        return str(names[value])
    return re.sub(r"^(-?\d+)\.0$", r"\1", str(int(value) if isinstance(value, bool) else value).strip())


def _meets(row: Row, condition: tuple[str, str, str], table: Table) -> bool:
    """Return whether a row meets ``positive``."""
    column, sign, wanted = condition
    given = value_of(row, column, table)
    try:
        return bool(_COMPARED[sign](float(given), float(wanted)))
    except ValueError:
        return given != "" and bool(_COMPARED[sign](given.lower(), wanted.lower()))
