"""File formats of a corpus: detecting the format of a file, and reading its texts."""

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, nearest
from stillhouse.core.json_text import parse_json
from stillhouse.corpora.published.msmarco import has_texts
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
    try:
        kind = _kind(system, path, encoding)
        if kind == "parquet":
            texts = _parquet(system, path, column)
        else:
            readers = {
                "text": _lines,
                "wiki": _wiki,
                "json": _json,
                "csv": _csv,
                "tsv": _tsv,
                "marco": _marco,
            }
            texts = readers[kind](open_text(system, path, encoding), path, column)
        for text in texts:
            yield decoded(text, encoding), kind == "wiki"
    except UnicodeError as error:
        raise BadInput(f"{path} must be {encoding} text, but is not: {error}. {_GIVE_ENCODING}") from None
    except (OSError, EOFError) as error:
        raise BadInput(f"{path} must be readable, but reading it failed: {error}.") from error


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
    if column not in row or row[column] is None:
        return Rejected(str(dict(row)), f"no {column}")
    value = row[column]
    return value if isinstance(value, str) else Rejected(repr(value), f"{column} is not text")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a UTF-8 text file, plain or gzipped by its name, with their numbers from 1.

    Raises:
        BadInput: If it is not UTF-8, cut, or cannot be read.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
            yield from enumerate(lines, start=1)
    except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
        raise BadInput(f"{path} must be complete UTF-8 text, but reading it failed: {error}.") from None


def _kind(system: Any, path: str, encoding: str) -> str:
    with system.open_input_stream(path, compression=_compression(system, path)) as stream:
        head: bytes = stream.read(_SNIFFED)
    if head.startswith(b"PAR1"):
        return "parquet"
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
    name = path.lower().removesuffix(".gz")
    for suffix, kind in ((".csv", "csv"), (".tsv", "tsv"), (".jsonl", "json"), (".json", "json")):
        if name.endswith(suffix):
            return kind
    if _DOC.match(start):
        return "wiki"
    return "json" if start.startswith('{"') else "text"


def _compression(system: Any, path: str) -> str | None:
    with system.open_input_stream(path, compression=None) as stream:
        return "gzip" if stream.read(2) == b"\x1f\x8b" else None


def open_text(system: Any, path: str, encoding: str) -> io.TextIOWrapper:
    """Open a text file of a pyarrow file system, plain or gzipped; see `decoded` for undecodable bytes."""
    stream = system.open_input_stream(path, compression=_compression(system, path), buffer_size=1 << 20)
    name = codecs.lookup(encoding).name
    # Undecodable bytes become lone surrogates, so that only their line is lost.
    return io.TextIOWrapper(stream, "utf-8-sig" if name == "utf-8" else name, "surrogateescape", newline=None)


def decoded(text: str | Rejected, encoding: str) -> str | Rejected:
    """Return a text read by `open_text`, or reject it if it has undecodable bytes."""
    if isinstance(text, str) and not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
        return Rejected(text, f"not {encoding}")
    return text


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


def _json(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    picked = ""
    with stream:
        for line in stream:
            if not line.strip():
                yield Rejected("", "empty")
                continue
            if isinstance(decoded(line, ""), Rejected):
                yield line.rstrip("\n")
                continue
            try:
                row = parse_json(line)
            except ValueError:
                yield Rejected(line.rstrip("\n"), "not JSON")
                continue
            if not isinstance(row, dict):
                yield Rejected(line.rstrip("\n"), "not a JSON object")
                continue
            picked = picked or pick_column(list(row), column, path)
            yield field(row, picked)


def _csv(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    return _delimited(stream, path, column, ",")


def _tsv(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    return _delimited(stream, path, column, "\t")


def _delimited(
    stream: io.TextIOWrapper, path: str, column: str | None, delimiter: str
) -> Iterator[str | Rejected]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    stream.reconfigure(newline="")
    with stream:
        lines = _Lines(stream)
        rows = csv.DictReader(lines, delimiter=delimiter)
        try:
            columns = list(rows.fieldnames or [])
            lines.require_closed_quote(path)
            picked = pick_column(columns, column, path)
            for row in rows:
                lines.require_closed_quote(path)
                ragged = _ragged(row, len(columns))
                yield Rejected(str(row.get(picked) or ""), ragged) if ragged else field(row, picked)
        except csv.Error as error:
            raise BadInput(f"{path} must be CSV, but line {rows.line_num} is not: {error}.") from None


class _Lines:
    """The lines of a CSV file, with the place where the row began that is being read."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = enumerate(lines, start=1)
        self._first, self._ended = 0, False

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        for number, line in self._lines:
            self._first = self._first or number
            return line
        self._ended = True
        raise StopIteration

    def require_closed_quote(self, path: str) -> None:
        """Refuse a row that is complete only because the file ended; call it after each row.

        Python asks for a line after the last one only within quotation marks, and the row then has swallowed
        all rows after the mark.
        """
        if self._ended and self._first:
            raise BadInput(
                f"{path} must close every quotation mark, but one in the row that begins on line "
                f"{self._first} is never closed, and the rest of the file would be its text. Close it, or "
                'write a mark that belongs to the text twice, as "".'
            )
        self._first = 0


def _ragged(row: Mapping[Any, Any], columns: int) -> str:
    """Say in which way a row does not fit the header; its text may be cut or be another column's."""
    if None in row:
        return f"{columns + len(row[None])} fields instead of {columns}; a field with a comma needs quotes"
    missing = sum(value is None for value in row.values())
    return f"{columns - missing} fields instead of {columns}" if missing else ""


def _parquet(system: Any, path: str, column: str | None) -> Iterator[str | Rejected]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with system.open_input_file(path) as file:
            table = pq.ParquetFile(file)
            picked = pick_column(table.schema_arrow.names, column, path)
            kind = table.schema_arrow.field(picked).type
            texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            if not texts:
                raise BadInput(f"column {picked} of {path} must hold text, but has the type {kind}.")
            for batch in table.iter_batches(columns=[picked]):
                for text in batch.column(0).to_pylist():
                    yield Rejected("", f"no {picked}") if text is None else text
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise BadInput(f"{path} must be a complete Parquet file, but reading it failed: {error}.") from None
