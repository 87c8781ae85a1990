"""Rows with columns: JSON lines and arrays, CSV, TSV, Parquet, Arrow and data sets on the hub.

Files may be compressed with gzip, bzip2, xz or zstd, which their first bytes tell. In TSV a quotation mark is
text; CSV is read strictly, and its delimiter is recognised. An empty cell, JSON's null and NaN are missing.
"""

import bz2
import codecs
import csv
import io
import json
import lzma
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput
from stillhouse.core.json_text import parse_json
from stillhouse.corpora.tables import Rejected

TABLES = {
    ".jsonl": "JSON", ".ndjson": "JSON", ".json": "JSON", ".csv": "CSV", ".tsv": "TSV",
    ".parquet": "Parquet", ".arrow": "Arrow",
}  # fmt: skip
"""Formats with columns by suffix."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_DELIMITERS = ",;\t|"
_LOOKED_AT = 100
_WORD = re.compile(r"\w[\w.-]*")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A file with columns.

    Attributes:
        form: Its format, for people: ``CSV (delimiter ;, gzip)``.
        columns: Its columns; of JSON, those of the first rows.
        rows: Reads its rows, each with where it stands; given a column, possibly that alone.
        names: Names of numbers, by column.
        types: Types of columns, of Parquet and Arrow.
        notes: What is counted while it is read, in words.
    """

    form: str
    columns: list[str]
    rows: Callable[[str | None], Iterator[tuple[str, Row | Rejected]]]
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)


def without_packing(path: str) -> str:
    """A path in lower case, without the suffix of a compression."""
    path = path.lower()
    return next((path.removesuffix(suffix) for suffix in PACKED if path.endswith(suffix)), path)


def table_kind(path: str) -> str:
    """The format that the suffix of a file names; empty for none."""
    return next((kind for suffix, kind in TABLES.items() if without_packing(path).endswith(suffix)), "")


def compression(system: Any, path: str) -> str | None:
    """How a file is compressed, by its first bytes."""
    with system.open_input_stream(path, compression=None) as stream:
        head = stream.read(6)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def open_bytes(system: Any, path: str) -> Any:
    """Open a file of a pyarrow file system, decompressed."""
    packing = compression(system, path)
    openers: dict[str, Any] = {"bz2": bz2.open, "xz": lzma.open}
    python = openers.get(packing or "")
    stream = system.open_input_stream(path, compression=None if python else packing, buffer_size=1 << 20)
    return python(stream) if python else stream


def open_text(system: Any, path: str, encoding: str) -> io.TextIOWrapper:
    """Open a text file of a pyarrow file system, decompressed; see `decoded` for undecodable bytes."""
    name = codecs.lookup(encoding).name
    name = "utf-8-sig" if name == "utf-8" else name
    # Undecodable bytes become lone surrogates, so that only their line is lost.
    return io.TextIOWrapper(open_bytes(system, path), name, "surrogateescape", newline=None)


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate: undecodable bytes become some, and JSON can spell them."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def decoded(text: str, encoding: str) -> str | Rejected:
    """Return a text read by `open_text`, or reject it if it has undecodable bytes."""
    return text if is_unicode(text) else Rejected(text, f"not {encoding}")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a local UTF-8 text file, plain or compressed, with their numbers from 1.

    Raises:
        BadInput: It is not UTF-8, cut, or cannot be read; the message names the line.
    """
    from pyarrow import fs

    with readable(str(path), "complete"), open_text(fs.LocalFileSystem(), str(path), "utf-8") as lines:
        lines.reconfigure(newline="\n")
        for number, line in enumerate(lines, start=1):
            if not is_unicode(line):
                raise BadInput(f"{path}, line {number}: must be UTF-8, but is not.")
            yield number, line


def missing(value: Any) -> bool:
    """Whether a cell has no value: it is empty, null or NaN."""
    return value is None or value == "" or value != value


@contextmanager
def readable(path: str, what: str = "", row: Callable[[], int] | None = None) -> Iterator[None]:
    """Turn what a broken file raises into bad input, which names the last row that could be read."""
    import pyarrow as pa

    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error, pa.ArrowException) as error:
        after = f" after row {row():,}" if row is not None else ""
        raise BadInput(
            f"{path} must be {what or 'readable'}, but reading it failed{after}: {error}."
        ) from error


def open_table(
    system: Any, path: str, kind: str, encoding: str, delimiter: str = "", header: str = ""
) -> Table:
    """Open a file with columns.

    Args:
        system: A pyarrow file system.
        path: A file on it.
        kind: One of the values of `TABLES`.
        encoding: Encoding of a text file.
        delimiter: Character between cells, or ``tab``; empty recognises it.
        header: Whether the first line of CSV and TSV has the columns' names, ``yes`` or ``no``; empty
            recognises it.

    Raises:
        BadInput: The file is not what its name says, or cannot be read; so do the rows.
    """
    if kind in ("Parquet", "Arrow"):
        return _arrow(system, path, kind)
    with readable(path, "complete"):
        packing = compression(system, path)
        stream = open_text(system, path, encoding)
        said = [packing] if packing else []
        if kind == "JSON":
            table = _peeked(kind, _json(stream, path))
        else:
            mark = "\t" if delimiter == "tab" else delimiter
            said, table = _delimited(stream, path, kind, said, mark, header)
    if encoding.lower() not in ("utf-8", "utf8"):
        said.append(encoding)
    form = f"{kind} ({', '.join(said)})" if said else kind
    return replace(table, form=form, rows=lambda column: _whole(table.rows(column), path))


def _whole(rows: Iterator[tuple[str, Row | Rejected]], path: str) -> Iterator[tuple[str, Row | Rejected]]:
    """The rows of a file, which names the row after which it cannot be read."""
    number = 0
    with readable(path, "complete", lambda: number):
        for each in rows:
            yield each
            number += 1


def hub_table(source: str, name: str, config: str | None, split: str) -> Table:
    """Open a data set on the hub.

    Raises:
        BadInput: It cannot be loaded, or its stream fails.
    """
    import datasets

    def rows(_: str | None = None) -> Iterator[tuple[str, Row | Rejected]]:
        try:
            for at, row in enumerate(loaded, start=1):
                yield f"row {at} of {source}", row
        except Exception as error:
            raise BadInput(f"{source} must be readable to its end, but got: {error}") from error

    try:
        loaded = datasets.load_dataset(name, config, split=split, streaming=True)
        columns = list(loaded.column_names or next(iter(loaded)))
        features = getattr(loaded, "features", None) or {}
    except Exception as error:  # The hub's client raises errors of many kinds; the user can fix the name.
        raise BadInput(f"{source} must be a data set that can be loaded, but got: {error}") from error
    return Table(
        "data set", columns, rows, {key: each.names for key, each in features.items() if _named(each)}
    )


def _named(feature: Any) -> bool:
    return isinstance(getattr(feature, "names", None), list)


def _peeked(form: str, rows: Iterator[tuple[str, Row | Rejected]]) -> Table:
    """A table whose columns are those of its first rows."""
    first = list(islice(rows, _LOOKED_AT))
    columns = dict.fromkeys(chain.from_iterable(row for _, row in first if not isinstance(row, Rejected)))
    return Table(form, [str(name) for name in columns], lambda _: chain(first, rows))


def _json(stream: io.TextIOWrapper, path: str) -> Iterator[tuple[str, Row | Rejected]]:
    """Read a file with one object per line, whose columns may differ from row to row, or an array of them."""
    with stream:
        for number, line in enumerate(stream, start=1):
            if number == 1 and line.lstrip().startswith("["):
                yield from _array(line + stream.read(), path)
                return
            yield f"line {number} of {path}", _object(line)


def _array(text: str, path: str) -> Iterator[tuple[str, Row | Rejected]]:
    try:
        items = parse_json(text)
    except ValueError as error:
        raise BadInput(f"{path} must be a JSON array, as it begins, but is not: {error}.") from None
    for number, item in enumerate(items, start=1):
        good = isinstance(item, dict)
        yield f"item {number} of {path}", item if good else Rejected(json.dumps(item), "not a JSON object")


def _object(line: str) -> Row | Rejected:
    text = line.rstrip("\n")
    if not text.strip():
        return Rejected("", "empty")
    if isinstance(decoded(text, "utf-8"), Rejected):
        return Rejected(text, "not utf-8")
    try:
        row = parse_json(text)
    except ValueError:
        return Rejected(text, "not JSON")
    return row if isinstance(row, dict) else Rejected(text, "not a JSON object")


def _delimited(
    stream: io.TextIOWrapper, path: str, kind: str, said: list[str], delimiter: str, header: str
) -> tuple[list[str], Table]:
    """Open CSV, read strictly, or TSV, in which a quotation mark is text; and say how it is read."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    quoted = kind == "CSV"
    stream.reconfigure(newline="" if quoted else "\n")
    head = list(islice(stream, _LOOKED_AT))
    delimiter = delimiter or (_delimiter(head) if quoted else "\t")
    notes = Counter[str]()
    rows = _cells(chain(head, stream), path, delimiter, notes, quoted=quoted)
    first = list(islice(rows, 2))
    columns = first.pop(0)[1] if first and header != "no" else []
    if header == "no":
        columns = [str(place + 1) for place in range(len(first[0][1]))] if first else []
        said = [*said, "no header"]
    _require_one_width(head, delimiter, len(columns), path, quoted=quoted)
    if not header:
        _require_names(columns, first[0][1] if first else [], path)
    columns = distinct(columns)

    def read(_: str | None = None) -> Iterator[tuple[str, Row | Rejected]]:
        with stream:
            for line, cells in chain(first, rows):
                row: Row | Rejected = dict(zip(columns, cells, strict=False))
                if len(cells) != len(columns):
                    ragged = f"{len(cells)} fields instead of {len(columns)}"
                    more = len(cells) > len(columns) and quoted
                    ragged += "; a field with a comma needs quotes" if more else ""
                    row = Rejected(delimiter.join(cells), ragged)
                yield f"line {line} of {path}", row

    marks = f"delimiter {delimiter!r}" if quoted else "quotation marks are text"
    return [marks, *said], Table(kind, columns, read, notes=notes)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of columns; of equal ones the second is called ``text.2``."""
    return [
        f"{name}.{names[:at].count(name) + 1}" if name in names[:at] else name
        for at, name in enumerate(names)
    ]


def _require_one_width(head: Sequence[str], delimiter: str, width: int, path: str, *, quoted: bool) -> None:
    """Refuse a delimiter that divides most of the first rows into another number of cells than the header."""
    plain = (line.rstrip("\r\n").split(delimiter) for line in head)
    rows = [row for row in (csv.reader(head, delimiter=delimiter) if quoted else plain) if any(row)]
    other = [len(row) for row in rows[1:] if len(row) != width]
    if 2 * len(other) > len(rows) - 1:
        raise BadInput(
            f"{path} must have as many cells in every row as in the first, {width} with the delimiter "
            f"{delimiter!r}, but most of its first rows have others, such as {other[0]}. State the delimiter."
        )


def _cells(
    lines: Iterable[str], path: str, delimiter: str, notes: Counter[str], *, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of every row with the line on which it begins."""
    if not quoted:
        for number, line in enumerate(lines, start=1):
            if text := line.removesuffix("\n").removesuffix("\r"):
                yield number, text.split(delimiter)
        return
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first = 1
    try:
        for cells in reader:
            if cells:
                notes["rows span several lines"] += reader.line_num > first
                yield first, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(
            f"{path} must close every quotation mark at the end of a cell, but the row that begins on line "
            f'{first} does not: {error}. Close it, or write a mark that belongs to the text twice, as "".'
        ) from None


def _delimiter(head: Sequence[str]) -> str:
    """The delimiter that divides the header, and most rows into as many cells."""
    best, most = ",", 0.0
    for delimiter in _DELIMITERS:
        rows = [row for row in csv.reader(head, delimiter=delimiter) if row]
        width = len(rows[0]) if rows else 0
        agreeing = sum(len(row) == width for row in rows) / max(1, len(rows))
        if width > 1 and agreeing > most:
            best, most = delimiter, agreeing
    return best


def _require_names(columns: Sequence[str], second: Sequence[str], path: str) -> None:
    """Refuse a first line that looks like data."""
    known = {"text", "sentence", "query", "passage", "label", "score", "positive"}
    if known & {name.strip().lower() for name in columns} or not columns:
        return
    data = [name for name in columns if _is_data(name)]
    if len(columns) == 1 and not data and not _WORD.fullmatch(columns[0].strip()):
        data = list(columns)
    if len(columns) == 1 and second and not data and _WORD.fullmatch(second[0].strip()):
        data = list(columns)
    if data:
        raise BadInput(
            f"{path} must have a header, but its first line looks like data: {data[0]!r:.80} would be "
            "the name of a column. Put the columns' names in front, such as text, or query and passage, or "
            "state `header`: yes or no."
        )


def _is_data(name: str) -> bool:
    """Whether the name of a column looks like a cell: a sentence, a long text or a number."""
    sentence = len(name.split()) > 3 or name.rstrip().endswith((".", "?", "!", "。", "？", "！"))
    return sentence or len(name) > 60 or _is_number(name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _arrow(system: Any, path: str, kind: str) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    what = f"a complete {kind} file"

    def batches(column: str | None) -> Iterator[Any]:
        with readable(path, what), system.open_input_file(path) as file:
            if kind == "Parquet":
                yield from pq.ParquetFile(file).iter_batches(columns=[column] if column else None)
            elif file.read(6) == b"ARROW1":
                opened = pa.ipc.open_file(file)
                yield from map(opened.get_batch, range(opened.num_record_batches))
            else:
                file.seek(0)
                yield from pa.ipc.open_stream(file)

    def rows(column: str | None = None) -> Iterator[tuple[str, Row | Rejected]]:
        number = 0
        for batch in batches(column):
            try:
                found = batch.to_pylist()
            except UnicodeDecodeError as error:
                raise BadInput(f"{path} must be {what}, but reading it failed: {error}.") from None
            for row in found:
                number += 1
                yield f"row {number} of {path}", row

    with readable(path, what), system.open_input_file(path) as file:
        if kind == "Parquet":
            schema = pq.ParquetFile(file).schema_arrow
        else:
            opener = pa.ipc.open_file if file.read(6) == b"ARROW1" else pa.ipc.open_stream
            file.seek(0)
            schema = opener(file).schema
    types = dict(zip(schema.names, schema.types, strict=True))
    return Table(kind, list(schema.names), rows, _class_names(schema.metadata or {}), types)


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """The names of class labels, as ``datasets`` writes them beside a schema."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except ValueError:
        return {}
    return {
        key: each["names"] for key, each in features.items() if isinstance(each, dict) and each.get("names")
    }
