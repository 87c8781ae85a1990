"""File formats of a corpus: what a file is, and the texts that are in it."""

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.corpora.writing import Rejected

_SNIFFED = 65_536
_USUAL_COLUMNS = ("text", "sentence")
_DOC = re.compile(r"<doc\b[^>]*>")
_TITLE = re.compile(r'\btitle="([^"]*)"')
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def check_encoding(encoding: str) -> None:
    """Refuse an encoding that Python does not know."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise BadInput(f"`encoding` must be one that Python knows, but got encoding={encoding!r}.") from None


def read_file(
    system: Any, path: str, column: str | None, encoding: str
) -> Iterator[tuple[str | Rejected, bool]]:
    """The texts of one file, and whether they are running text.

    Args:
        system: A pyarrow file system.
        path: A file of it, plain or gzipped.
        column: The field with the text; None takes the usual one.
        encoding: Of a text file.

    Raises:
        BadInput: The file is unreadable, of another encoding, or has not that column.
    """
    try:
        kind = _kind(system, path, encoding)
        if kind == "parquet":
            texts = _parquet(system, path, column)
        else:
            readers = {"text": _lines, "wiki": _wiki, "json": _json, "csv": _csv, "tsv": _tsv}
            texts = readers[kind](open_text(system, path, encoding), path, column)
        for text in texts:
            yield decoded(text, encoding), kind == "wiki"
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} must be {encoding} text, but: {error}. Give its encoding.") from None
    except (OSError, EOFError) as error:
        raise BadInput(f"{path} must be readable, but reading it gave: {error}.") from error


def pick_column(columns: Sequence[str], wanted: str | None, path: str) -> str:
    """The column with the text.

    Raises:
        BadInput: It is not there, or none is asked for and there is no usual one; names those there are.
    """
    if wanted is not None:
        there = f"Its columns: {', '.join(map(str, columns))}. {nearest(wanted, [str(c) for c in columns])}"
        require(wanted in columns, f"{path} has the column", column=wanted, remedy=there)
        return wanted
    for usual in _USUAL_COLUMNS:
        if usual in columns:
            return usual
    remedy = "Say which one holds the text (column)."
    require(len(columns) == 1, f"{path} has one column, or one named text", columns=columns, remedy=remedy)
    return columns[0]


def field(row: Mapping[str, Any], column: str) -> str | Rejected:
    """The text of a row, or why there is none."""
    if column not in row or row[column] is None:
        return Rejected(str(dict(row)), f"no {column}")
    value = row[column]
    return value if isinstance(value, str) else Rejected(repr(value), f"{column} is not text")


def _kind(system: Any, path: str, encoding: str) -> str:
    with system.open_input_stream(path, compression=_compression(system, path)) as stream:
        head: bytes = stream.read(_SNIFFED)
    if head.startswith(b"PAR1"):
        return "parquet"
    wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    if not wide:
        remedy = "Give its encoding." if head.startswith(_UTF16) else "Is it a text file?"
        rule = f"{path} is {encoding} text"
        require(not head.startswith(_UTF16), rule, starts_with="a UTF-16 byte order mark", remedy=remedy)
        require(b"\0" not in head, rule, contains="zero bytes", remedy=remedy)
    start = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
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
    """A text file of a pyarrow file system, plain or gzipped; see `decoded` for bytes that are no text."""
    stream = system.open_input_stream(path, compression=_compression(system, path), buffer_size=1 << 20)
    name = codecs.lookup(encoding).name
    # Bytes that are no text come through as lone surrogates, so that only their line is lost.
    return io.TextIOWrapper(stream, "utf-8-sig" if name == "utf-8" else name, "surrogateescape", newline=None)


def decoded(text: str | Rejected, encoding: str) -> str | Rejected:
    """A text that was read by `open_text`, or why it is none."""
    if isinstance(text, str) and not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
        return Rejected(text, f"not {encoding}")
    return text


def _lines(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    rule = f"{path} has columns if one is asked for"
    require(column is None, rule, column=column, remedy="A text file has none: leave it out.")
    with stream:
        for line in stream:
            yield line.rstrip("\n")


def _wiki(stream: io.TextIOWrapper, path: str, column: str | None) -> Iterator[str | Rejected]:
    """Paragraphs without the tags and the titles, which WikiExtractor repeats in the first line."""
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
                row = json.loads(line)
            except (ValueError, RecursionError):
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
        rows = csv.DictReader(stream, delimiter=delimiter)
        try:
            picked = pick_column(list(rows.fieldnames or []), column, path)
            for row in rows:
                yield field(row, picked)
        except csv.Error as error:
            raise BadInput(f"{path} must be CSV, but line {rows.line_num} gave: {error}.") from None


def _parquet(system: Any, path: str, column: str | None) -> Iterator[str | Rejected]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with system.open_input_file(path) as file:
            table = pq.ParquetFile(file)
            picked = pick_column(table.schema_arrow.names, column, path)
            kind = table.schema_arrow.field(picked).type
            texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            require(texts, f"column {picked} of {path} holds text", type=str(kind))
            for batch in table.iter_batches(columns=[picked]):
                for text in batch.column(0).to_pylist():
                    yield Rejected("", f"no {picked}") if text is None else text
    except pa.ArrowInvalid as error:
        raise BadInput(f"{path} must be a whole Parquet file, but reading it gave: {error}.") from None
