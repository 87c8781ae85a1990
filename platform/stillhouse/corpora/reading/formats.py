"""File formats of a corpus: detecting the format of a file, and reading its texts."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, nearest
from stillhouse.corpora.published.msmarco import has_texts
from stillhouse.corpora.reading.rows import (
    Table,
    decoded,
    missing,
    open_bytes,
    open_table,
    open_text,
    readable,
    table_kind,
)
from stillhouse.corpora.tables import Rejected

_SNIFFED = 65_536
_USUAL_COLUMNS = ("text", "sentence")
_DOC = re.compile(r"<doc\b[^>]*>")
_TITLE = re.compile(r'\btitle="([^"]*)"')
_GIVE_ENCODING = "If it is text, give its encoding, such as --encoding latin-1."
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def check_encoding(encoding: str) -> None:
    """Refuse an encoding that Python does not know."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise BadInput(
            f"unknown encoding {encoding!r}: give one that Python knows, such as utf-8 or latin-1."
        ) from None


def read_file(
    system: Any, path: str, column: str | None, encoding: str
) -> Iterator[tuple[str | Rejected, bool]]:
    """Read the texts of one file, with whether they are running text.

    Args:
        system: A pyarrow file system.
        path: A file on it, plain or gzipped.
        column: Field with the text; None takes the usual one.
        encoding: Encoding of a text file.

    Raises:
        BadInput: If the file is unreadable or in another encoding, or lacks the column.
    """
    with readable(path):
        try:
            kind = _kind(system, path, encoding)
            if kind in _TEXTS:
                texts = _TEXTS[kind](open_text(system, path, encoding), path, column)
            else:
                texts = fields(open_table(system, path, kind, encoding), path, column)
            for text in texts:
                yield decoded(text, encoding), kind == "wiki"
        except UnicodeError as error:
            raise BadInput(f"{path} must be {encoding} text, but is not: {error}. {_GIVE_ENCODING}") from None


def fields(table: Table, path: str, column: str | None) -> Iterator[str | Rejected]:
    """Read the column with the text."""
    if not table.columns:
        picked = column or _USUAL_COLUMNS[0]
    else:
        picked = pick_column(table.columns, column, path)
    kind = str(table.types.get(picked, "string"))
    if "string" not in kind or kind.startswith(("list", "struct", "map")):
        raise BadInput(f"column {picked} of {path} must hold text, but has the type {kind}.")
    for _, row in table.rows(picked):
        yield row if isinstance(row, Rejected) else field(row, picked)


def pick_column(columns: Sequence[str], column: str | None, path: str) -> str:
    """Choose the column with the text.

    Args:
        columns: Columns of the file.
        column: Required column; None takes a usual one.
        path: The file, for messages.

    Raises:
        BadInput: If the column does not exist, or none is required and there is no usual one.
    """
    names = ", ".join(map(str, columns))
    if column is not None:
        if column not in columns:
            near = nearest(column, [str(name) for name in columns])
            raise BadInput(f"{path} has no column {column!r}. Its columns: {names}. {near}")
        return column
    for usual in _USUAL_COLUMNS:
        if usual in columns:
            return usual
    if len(columns) != 1:
        raise BadInput(
            f"{path} must have one column, or one named text, but has {names or 'none'}. Say which one holds "
            "the text (column)."
        )
    return columns[0]


def field(row: Mapping[str, Any], column: str) -> str | Rejected:
    """Return the text of a row, or the reason why it has none."""
    value = row.get(column)
    if missing(value):
        return Rejected(str(dict(row)), f"no {column}")
    return value if isinstance(value, str) else Rejected(repr(value), f"{column} is not text")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a UTF-8 text file, plain or gzipped by its name, with their numbers from 1.

    Raises:
        BadInput: If it is not UTF-8, cut, or cannot be read.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
            yield from enumerate(lines, start=1)
    except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
        raise BadInput(f"{path} must be complete UTF-8 text, but reading it failed: {error}.") from None


def _kind(system: Any, path: str, encoding: str) -> str:
    with open_bytes(system, path) as stream:
        head: bytes = stream.read(_SNIFFED)
    if head.startswith(b"PAR1"):
        return "Parquet"
    if table_kind(path) == "Arrow":
        return "Arrow"
    if path.lower().endswith(".parquet"):
        raise BadInput(f"{path} must be a Parquet file, as its name says, but is not. Rename or replace it.")
    wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    if not wide:
        if head.startswith(_UTF16):
            raise BadInput(
                f"{path} must be {encoding} text, but starts with a UTF-16 byte order mark. Give "
                "--encoding utf-16."
            )
        if b"\0" in head:
            raise BadInput(
                f"{path} must be {encoding} text, but contains zero bytes. {_GIVE_ENCODING} UTF-16 without a "
                "mark is utf-16-le or utf-16-be."
            )
    start = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if has_texts(path, start):
        return "marco"
    if kind := table_kind(path):
        return kind
    if _DOC.match(start):
        return "wiki"
    return "JSON" if start.startswith(('{"', '[{"')) else "text"


def _lines(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    if column is not None:
        raise BadInput(f"{path} is a text file and has no column {column!r}. Omit the column.")
    with stream:
        for line in stream:
            yield line.rstrip("\n")


def _marco(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    """Read the texts of lines with an id and a text."""
    if column is not None:
        raise BadInput(f"{path} has an id and a text per line and no column {column!r}. Omit the column.")
    with stream:
        for line in stream:
            _, tab, text = line.rstrip("\n").partition("\t")
            yield text if tab else Rejected(line.rstrip("\n"), "no tab after the id")


def _wiki(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    """Read paragraphs without the tags and the title, which WikiExtractor repeats in the first line."""
    title = ""
    with stream:
        for line in stream:
            text = line.strip()
            if match := _DOC.match(text):
                found = _TITLE.search(match.group())
                title = found.group(1) if found else ""
            elif text == title:
                title = ""
            elif text and text != "</doc>":
                yield text


_TEXTS: dict[str, Callable[[io.TextIOWrapper, str, str | None], Iterator[str | Rejected]]] = {
    "text": _lines,
    "wiki": _wiki,
    "marco": _marco,
}
