"""File formats of a corpus: detecting the format of a file, and reading its texts."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stillhouse.core.errors import BadInput, nearest
from stillhouse.corpora.published.msmarco import has_texts
from stillhouse.corpora.reading.rows import (
    Table,
    compression,
    decoded,
    missing,
    open_bytes,
    open_table,
    open_text,
    readable,
    table_kind,
)
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.reading.understood import Reading
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
    system: Any, path: str, encoding: str, column: str | None, schema: Schema, reading: Reading
) -> Iterator[tuple[str | Rejected, bool]]:
    """Read the texts of one file, with whether they are running text.

    Args:
        system: A pyarrow file system.
        path: A file on it, plain or compressed.
        encoding: Encoding of a text file.
        column: Field with the text; None takes the usual one.
        schema: What else is stated of the columns.
        reading: Learns what the file is taken for.

    Raises:
        BadInput: If the file is unreadable or in another encoding, or lacks the column.
    """
    with readable(path):
        try:
            kind = _kind(system, path, encoding)
            if kind in _TEXTS:
                texts = _lines_of(system, path, kind, encoding, column or schema.columns, reading)
            else:
                table = open_table(system, path, kind, encoding, schema.delimiter, schema.header)
                texts = fields(table, path, column, schema, reading)
            for text in texts:
                yield text if isinstance(text, Rejected) else decoded(text, encoding), kind == "wiki"
        except UnicodeError as error:
            raise BadInput(f"{path} must be {encoding} text, but is not: {error}. {_GIVE_ENCODING}") from None


def fields(
    table: Table, path: str, column: str | None, schema: Schema, reading: Reading
) -> Iterator[str | Rejected]:
    """Read the column with the text."""
    stated = schema.stated(table.columns, path) if table.columns else {}
    if not table.columns:
        picked = column or _USUAL_COLUMNS[0]
    else:
        picked = pick_column(table.columns, column or next(iter(stated.get("text", [])), None), path)
    kind = str(table.types.get(picked, "string"))
    if "string" not in kind or kind.startswith(("list", "struct", "map")):
        raise BadInput(f"column {picked} of {path} must hold text, but has the type {kind}.")
    unused = [name for name in table.columns if name != picked]
    reading.opened(table.form, {"text": picked}, unused, table.notes)
    guessed = picked not in (column, *stated.get("text", []), *_USUAL_COLUMNS)
    for where, row in schema.rows(table, picked):
        if guessed and not isinstance(row, Rejected) and not row.keys().isdisjoint(_USUAL_COLUMNS):
            raise BadInput(
                f"{where} has the columns {', '.join(row)}, but those before it have {picked} alone. "
                "Say which one holds the text (column)."
            )
        yield row if isinstance(row, Rejected) else field(row, picked)


def _lines_of(
    system: Any, path: str, kind: str, encoding: str, column: str, reading: Reading
) -> Iterator[str | Rejected]:
    """Read the texts of a file without columns."""
    names = {"text": "text, one per line", "wiki": "WikiExtractor", "marco": "an id and a text per line"}
    if column:
        raise BadInput(f"{path} is {names[kind]}, and has no column {column!r}. Omit the column.")
    packing = compression(system, path)
    reading.opened(f"{names[kind]} ({packing})" if packing else names[kind], {"text": "line"})
    with open_text(system, path, encoding) as stream:
        yield from _TEXTS[kind](stream)


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
    usual = [name for name in _USUAL_COLUMNS if name in columns] or list(columns)
    if len(usual) != 1:
        raise BadInput(
            f"{path} must have one column, or one named text, but has {names or 'none'}. Say which one holds "
            "the text (column)."
        )
    return usual[0]


def field(row: Mapping[str, Any], column: str) -> str | Rejected:
    """Return the text of a row, or the reason why it has none."""
    value = row.get(column)
    if missing(value):
        return Rejected(str(dict(row)), f"no {column}")
    return value if isinstance(value, str) else Rejected(repr(value), f"{column} is not text")


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


def _lines(stream: Iterable[str]) -> Iterator[str | Rejected]:
    for line in stream:
        yield line.rstrip("\n")


def _marco(stream: Iterable[str]) -> Iterator[str | Rejected]:
    """Read the texts of lines with an id and a text."""
    for line in stream:
        _, tab, text = line.rstrip("\n").partition("\t")
        yield text if tab else Rejected(line.rstrip("\n"), "no tab after the id")


def _wiki(stream: Iterable[str]) -> Iterator[str | Rejected]:
    """Read paragraphs without the tags and the title, which WikiExtractor repeats in the first line."""
    title = ""
    for line in stream:
        text = line.strip()
        if match := _DOC.match(text):
            found = _TITLE.search(match.group())
            title = found.group(1) if found else ""
        elif text == title:
            title = ""
        elif text and text != "</doc>":
            yield text


_TEXTS: dict[str, Callable[[Iterable[str]], Iterator[str | Rejected]]] = {
    "text": _lines,
    "wiki": _wiki,
    "marco": _marco,
}
