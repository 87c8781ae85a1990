"""Text in memory: a list, a pandas DataFrame or Series, or a `datasets.Dataset`, and the file it becomes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import replacing
from stillhouse.core.errors import require

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment

IN_MEMORY = "in_memory"
"""Metadata of fields that hold text: the field that gets its path instead, and fields that this empties."""
NAMES = {"names": True}
"""Metadata of fields that an experiment file may give as names and values; they hold them as text."""
_FOLDER = "texts"
_USUAL = ("text", "sentence")
_PASSED_ON = (str, int, float, bool)


@dataclass(frozen=True)
class Held:
    """Rows that have been checked, as JSON lines with their hash; it prints as ``60,000 texts``, or pairs."""

    lines: tuple[str, ...] = field(compare=False)
    what: str
    sha256: str

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.lines)

    def __str__(self) -> str:
        """Their number."""
        return f"{len(self.lines):,} {self.what}"

    __repr__ = __str__

    def written(self, root: Path) -> str:
        """Write the file of a workspace where it is not there yet, and return its path."""
        path = root.resolve() / _FOLDER / self.sha256[:16] / f"{len(self.lines)}-{self.what}.jsonl"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as place:
                place.write_text("".join(f"{line}\n" for line in self.lines), encoding="utf-8")
        return str(path)


def held_texts(given: Any, column: str) -> Held:
    """Check texts in memory.

    Args:
        given: A list of texts, a Series, or a DataFrame or a data set with a column of texts.
        column: The column; empty takes ``text``, ``sentence``, or the only one.

    Raises:
        BadInput: There is no such column or no text, or one of them is no text or blank.
    """
    name = "sentences.texts"
    if isinstance(given, Held):
        return given
    columns = _columns(given)
    if columns is not None:
        chosen = column or next((each for each in (*_USUAL, *columns[:1]) if each in columns), "")
        require(
            chosen in columns and bool(column or chosen in _USUAL or len(columns) == 1),
            "sentences.column must name a column of the texts",
            column=column,
            columns=columns,
        )
        given = given[chosen]
    texts = _listed(given, name, "a list of texts, a DataFrame, a Series or a Dataset")
    for at, text in enumerate(texts):
        require(isinstance(text, str) and bool(text.strip()), f"{name}[{at}] must be a text", text=text)
    return _held([json.dumps({"text": text}) for text in texts], "texts")


def held_rows(given: Any) -> Held:
    """Check labelled rows in memory: tuples of texts, mappings, a DataFrame or a data set.

    Raises:
        BadInput: There is no row, a row has other columns than the first, or a value is missing.
    """
    name = "pairs.rows"
    if isinstance(given, Held):
        return given
    columns = _columns(given)
    if columns is not None:
        given = zip(*(list(given[column]) for column in columns), strict=True)
    rows = _listed(given, name, "a list of (query, passage), a DataFrame or a Dataset")
    for at, row in enumerate(rows):
        require(
            isinstance(row, Mapping | list | tuple) and len(row) >= 2,
            f"{name}[{at}] must be a query and a passage",
            row=row,
        )
    if columns is None:
        first = rows[0]
        numbered = [f"negative_{at + 1}" for at in range(len(first) - 2)]
        columns = list(first) if isinstance(first, Mapping) else ["query", "passage", *numbered]
    lines = []
    for at, row in enumerate(rows):
        same = set(row) == set(columns) if isinstance(row, Mapping) else len(row) == len(columns)
        require(same, f"{name}[{at}] must have the columns of the first row", row=row, columns=columns)
        values = row if isinstance(row, Mapping) else dict(zip(columns, row, strict=True))
        lines.append(json.dumps({key: _plain(values[key], f"{name}[{at}]", key) for key in columns}))
    return _held(lines, "pairs")


def in_files(experiment: "Experiment", root: Path) -> "Experiment":
    """The same experiment with the path of a file for all text in memory, which is written below ``root``."""
    data = tuple(_in_file(kind, root) for kind in experiment.data)
    return experiment if data == experiment.data else replace(experiment, data=data)


def _in_file(kind: Any, root: Path) -> Any:
    for each in fields(kind):
        held: Held | None = getattr(kind, each.name) if IN_MEMORY in each.metadata else None
        if held is not None:
            path, *others = each.metadata[IN_MEMORY]
            empty = dict.fromkeys(others, "")
            return replace(kind, **{each.name: None, path: held.written(root), **empty})
    return kind


def _columns(given: Any) -> list[str] | None:
    """The columns of a DataFrame or a data set; None for anything else."""
    names = getattr(given, "column_names", getattr(given, "columns", None))
    return None if names is None or isinstance(given, type) else [str(name) for name in names]


def _listed(given: Any, name: str, what: str) -> list[Any]:
    plain = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    require(plain, f"{name} must be {what}", **{name.rpartition(".")[2]: given})
    rows = list(given)
    require(bool(rows), f"{name} must not be empty", rows=0)
    return rows


def _plain(value: Any, row: str, key: str) -> Any:
    """A value as JSON has it: a text, a number, or a list of them."""
    if not isinstance(value, str) and hasattr(value, "tolist"):
        value = value.tolist()
    listed: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    good = all(isinstance(each, _PASSED_ON) and each == each for each in listed)
    require(good, f"{row} must have a text or a number in {key!r}", **{key: value})
    blank = any(isinstance(each, str) and not each.strip() for each in listed)
    require(not blank, f"{row} must have no blank text in {key!r}", **{key: value})
    return value


def _held(lines: list[str], what: str) -> Held:
    return Held(tuple(lines), what, sha256("\n".join(lines).encode()).hexdigest())
