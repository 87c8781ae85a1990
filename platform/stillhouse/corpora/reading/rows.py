"""Files and data sets as rows: the one place where a reader opens a file.

Text, WikiExtractor's ``<doc>`` files, JSON lines and arrays, CSV, TSV, Parquet, Arrow and data sets on the
hub. Files may be compressed with gzip, bzip2, xz or zstd, which their first bytes tell. In TSV a quotation
mark is text; CSV is read strictly, and its delimiter is recognised. An empty cell, JSON's null and NaN are
missing.
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stillhouse.core.errors import BadInput, is_refused
from stillhouse.core.json_text import parse_json

TABLES = {
    ".jsonl": "JSON", ".ndjson": "JSON", ".json": "JSON", ".csv": "CSV", ".tsv": "TSV",
    ".parquet": "Parquet", ".arrow": "Arrow",
}  # fmt: skip
"""Formats with columns by suffix."""
PLAIN = {"text": "text, one per line", "wiki": "WikiExtractor", "marco": "an id and a text per line"}
"""Formats of text without columns."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_PYTHONS: dict[str | None, Any] = {"bz2": bz2.open, "xz": lzma.open}
_SURROGATE = re.compile("[\ud800-\udfff]")
_DELIMITERS = ",;\t|"
_LOOKED_AT, _SNIFFED = 100, 65_536
_WORD = re.compile(r"\w[\w.-]*")
_KNOWN_NAMES = {"text", "sentence", "query", "passage", "label", "score", "positive"}
_DOC = re.compile(r"<doc\b[^>]*>")
_MARCO = re.compile(r"(^|[/\\])(collection|queries(\.[^/\\]*)?)\.tsv(\.gz)?$")
"""Names of files with an id and a text per line, as MS MARCO publishes passages and queries."""
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TITLE = re.compile(r'\btitle="([^"]*)"')
_GIVE_ENCODING = "If it is text, give its encoding, such as --encoding latin-1."
_REMEDIES = {
    "not utf-8": "Give its encoding, such as --encoding latin-1.",
    "not JSON": "JSON must have one object per line, or be one array of objects.",
}
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be used: its text, as far as it can be printed, and the reason."""

    raw: str
    reason: str


T = TypeVar("T")
Row = Mapping[str, Any]
Numbered = Iterator[tuple[int, Row | Rejected]]
"""Rows with their numbers: the line on which a row begins, or how many come before it, from 1 on."""


class Cells(NamedTuple):
    """Delimiter, quoting and header of CSV and TSV.

    Attributes:
        delimiter: Character between them, or ``tab``; empty recognises it.
        header: Whether the first line has the columns' names, ``yes`` or ``no``; empty recognises it.
        ragged: Whether rows may have any number of cells.
    """

    delimiter: str = ""
    header: str = ""
    ragged: bool = False


@dataclass(frozen=True)
class Table:
    """A file or a data set as rows.

    Attributes:
        source: Where it is.
        form: Its format, for people: ``CSV (delimiter ;, gzip)``.
        columns: Its columns; of JSON, those of the first rows. Text has the column ``line``.
        rows: Reads its rows; given a column, possibly that alone.
        unit: What a row is called in messages.
        kind: Its format, one of the values of `TABLES` or the keys of `PLAIN`.
        names: Names of numbers, by column.
        types: Types of columns, of Parquet and Arrow.
        notes: What is counted while it is read, in words.
    """

    source: str
    form: str
    columns: list[str]
    rows: Callable[[str | None], Numbered]
    unit: str = "line"
    kind: str = ""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    def where(self, number: int) -> str:
        """Return the place of a row, for messages."""
        return f"{self.unit} {number} of {self.source}"

    def strict_rows(self, what: str = "") -> Iterator[tuple[int, Row]]:
        """The rows of a published file, a row being ``what`` in messages; empty lines of JSON are left out.

        Raises:
            BadInput: A row is damaged; the message names it.
        """
        what = what or ("a JSON object in UTF-8" if self.kind == "JSON" else "UTF-8")
        for number, row in self.rows(None):
            if not isinstance(row, Rejected) and (self.unit == "line" or is_unicode_row(row)):
                yield number, row
                continue
            reason = row.reason if isinstance(row, Rejected) else "not utf-8"
            if reason != "empty":
                raise BadInput(f"{self.source}, {self.unit} {number}: must be {what}, but is {reason}.")


def remedies(reasons: Collection[str]) -> str:
    """What to do where rows were rejected for some reasons; empty, or begins with a blank."""
    return "".join(f" {remedy}" for reason, remedy in _REMEDIES.items() if reason in reasons)


def without_packing(path: str) -> str:
    """A path in lower case, without the suffix of a compression."""
    path = path.lower()
    return next((path.removesuffix(suffix) for suffix in PACKED if path.endswith(suffix)), path)


def table_kind(path: str) -> str:
    """The format that the suffix of a file names; empty for none."""
    return next((kind for suffix, kind in TABLES.items() if without_packing(path).endswith(suffix)), "")


def check_encoding(encoding: str) -> None:
    """Refuse an encoding that Python does not know."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise BadInput(
            f"unknown encoding {encoding!r}: give one that Python knows, such as utf-8 or latin-1."
        ) from None


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogate: undecodable bytes become some, and JSON can spell them."""
    return text.isascii() or _SURROGATE.search(text) is None


def is_unicode_row(row: Row) -> bool:
    """Return whether all texts of a row are Unicode; see `is_unicode`."""
    return is_unicode(json.dumps(row, ensure_ascii=False, default=str))


def missing(value: Any) -> bool:
    """Return whether a cell has no value: it is empty, null or NaN."""
    return value is None or value == "" or value != value


@contextmanager
def readable(
    path: str, what: str = "complete", encoding: str = "", row: Callable[[], int] | None = None
) -> Iterator[None]:
    """Turn what a broken file raises into bad input, which names the last row that could be read."""
    import pyarrow as pa

    try:
        yield
    except (UnicodeError, OSError, EOFError, lzma.LZMAError, zlib.error, pa.ArrowException) as error:
        if encoding and isinstance(error, UnicodeError):
            raise BadInput(f"{path} must be {encoding} text, but is not: {error}. {_GIVE_ENCODING}") from None
        if isinstance(error, FileNotFoundError):
            raise BadInput(f"{path} must exist, but does not. Check the folder of the data.") from None
        after = f" after row {row():,}" if row is not None else ""
        raise BadInput(f"{path} must be {what}, but reading it failed{after}: {error}.") from error


def _packing(system: Any, path: str) -> str | None:
    """Return the compression of a file, by its first bytes."""
    with system.open_input_stream(path, compression=None) as stream:
        head = stream.read(6)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def _open_bytes(system: Any, path: str) -> Any:
    """Open a file of a pyarrow file system, decompressed."""
    packing = _packing(system, path)
    python = _PYTHONS.get(packing)
    stream = system.open_input_stream(path, compression=None if python else packing, buffer_size=1 << 20)
    return python(stream) if python else stream


def _open_text(system: Any, path: str, encoding: str, newline: str | None = None) -> io.TextIOWrapper:
    """Open a text file, decompressed. Undecodable bytes become lone surrogates: only their row is lost."""
    name = codecs.lookup(encoding).name
    with _open_bytes(system, path) as stream:
        _require_text(stream.read(_SNIFFED), path, encoding)
    name = "utf-8-sig" if name == "utf-8" else name
    return io.TextIOWrapper(_open_bytes(system, path), name, "surrogateescape", newline=newline)


def _require_text(head: bytes, path: str, encoding: str) -> None:
    """Refuse what cannot be text in an encoding."""
    if head.startswith(_ZIP):
        raise BadInput(f"{path} must be text, but is a zip archive or a workbook. Unpack or convert it.")
    if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        return
    mark = "starts with a UTF-16 byte order mark" if head.startswith(_UTF16) else ""
    if mark or b"\0" in head:
        raise BadInput(
            f"{path} must be {encoding} text, but {mark or 'contains zero bytes'}. Save it as UTF-8, or give "
            "a corpus's encoding, such as --encoding utf-16, without a mark utf-16-le or utf-16-be."
        )


def read_lines(system: Any, path: str, encoding: str) -> Iterator[str]:
    """Read the lines of a text file, which line feeds alone end: other separators may be inside a text."""

    def lines() -> Iterator[str]:
        with _open_text(system, path, encoding, "\n") as stream:
            yield from stream

    return _whole(lines(), path, "complete", encoding)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a local UTF-8 text file, plain or compressed, with their numbers from 1.

    Raises:
        BadInput: It is not UTF-8, cut, or cannot be read; the message names the line.
    """
    from pyarrow import fs

    for number, line in enumerate(read_lines(fs.LocalFileSystem(), str(path), "utf-8"), start=1):
        try:
            if not is_unicode(line):
                line.encode("utf-8", "surrogateescape").decode()
        except UnicodeDecodeError as error:
            at = f"{error.reason} at byte {error.start}"
            raise BadInput(f"{path}, line {number}: must be UTF-8, but has {at}.") from None
        yield number, line


def published_table(path: Path, kind: str, delimiter: str = "") -> Table:
    """Open a local file in UTF-8, whose rows are read by `Table.strict_rows`.

    A delimited one has a header, and its rows any number of cells. The kind is one of the values of `TABLES`.

    Raises:
        BadInput: It cannot be read.
    """
    from pyarrow import fs

    return open_table(fs.LocalFileSystem(), str(path), kind, "utf-8", Cells(delimiter, "yes", ragged=True))


def sniffed_kind(system: Any, path: str, encoding: str) -> str:
    """The format of a file by its content and its name: a key of `PLAIN` or one of the values of `TABLES`.

    Raises:
        BadInput: It cannot be read, or is in another encoding.
    """
    with readable(path), _open_bytes(system, path) as stream:
        head: bytes = stream.read(_SNIFFED)
    if head.startswith(b"PAR1"):
        return "Parquet"
    if table_kind(path) == "Arrow":
        return "Arrow"
    if path.lower().endswith(".parquet"):
        raise BadInput(f"{path} must be a Parquet file, as its name says, but is not. Rename or replace it.")
    start = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if _MARCO.search(path) and start.partition("\t")[0].strip().isdigit():
        return "marco"
    if kind := table_kind(path):
        return kind
    if _DOC.match(start):
        return "wiki"
    return "JSON" if start.startswith(('{"', '[{"')) else "text"


def open_table(system: Any, path: str, kind: str, encoding: str, cells: Cells) -> Table:
    """Open a file of a pyarrow file system; its kind is one of the values of `TABLES`, or a key of `PLAIN`.

    Raises:
        BadInput: The file is not what its name says, or cannot be read; so do the rows.
    """
    if kind in ("Parquet", "Arrow"):
        return _arrow(system, path, kind)
    with readable(path, "complete", encoding):
        packing = _packing(system, path)
        said = [packing] if packing else []
        stream = _open_text(system, path, encoding)
        if kind in PLAIN:
            texts = _plain_texts(kind, stream)
            found = Table(path, PLAIN[kind], ["line"], lambda _: enumerate(texts, start=1))
        elif kind == "JSON":
            found = _json(stream, path)
        else:
            found, how = _delimited(stream, path, kind, encoding, cells)
            said = [*how, *said]
    if not all(map(is_unicode, found.columns)):
        raise BadInput(
            f"{path} must have names of columns in {encoding}, but has others. "
            "Save it as UTF-8, or give the encoding of a corpus, such as --encoding latin-1."
        )
    if encoding.lower() not in ("utf-8", "utf8") and kind not in PLAIN:
        said.append(encoding)
    form = f"{found.form} ({', '.join(said)})" if said else found.form
    return replace(
        found, form=form, kind=kind, rows=lambda _: _whole(found.rows(None), path, "complete", encoding)
    )


def _whole(rows: Iterable[T], path: str, what: str, encoding: str = "") -> Iterator[T]:
    """The rows of a file; where it cannot be read any further, the message names the last one."""
    number = 0
    with readable(path, what, encoding, lambda: number):
        for each in rows:
            yield each
            number += 1


def hub_table(source: str, name: str, config: str | None, split: str) -> Table:
    """Open a data set on the hub.

    Raises:
        BadInput: It cannot be loaded, or its stream fails.
    """
    import datasets

    def rows(_: str | None = None) -> Numbered:
        try:
            yield from enumerate(loaded, start=1)
        except Exception as error:
            raise BadInput(f"{source} must be readable to its end, but got: {error}") from error

    try:
        loaded = datasets.load_dataset(name, config, split=split, streaming=True)
        columns = list(loaded.column_names or next(iter(loaded)))
        features = getattr(loaded, "features", None) or {}
    except Exception as error:  # The hub's client raises errors of many kinds; the user can fix the name.
        closed = isinstance(error, OSError) and is_refused(error)
        hint = ". Let HF_HOME name a folder that can be written." if closed else ""
        raise BadInput(f"{source} must be a data set that can be loaded, but got: {error}{hint}") from error
    given = {key: getattr(each, "names", None) for key, each in features.items()}
    names = {key: each for key, each in given.items() if isinstance(each, list)}
    return Table(source, "data set", columns, rows, "row", names=names)


def _plain_texts(kind: str, stream: Iterable[str]) -> Iterator[Row | Rejected]:
    """Read text without columns; of WikiExtractor, without tags and the title that the first line repeats."""
    title = ""
    for line in stream:
        text, tab = line.rstrip("\n"), "\t"
        if kind == "marco":
            _, tab, text = text.partition("\t")
        if kind == "wiki":
            text = line.strip()
            if match := _DOC.match(text):
                found = _TITLE.search(match.group())
                title = found.group(1) if found else ""
            elif text == title:
                title = ""
            elif text and text != "</doc>":
                yield {"line": text}
        elif tab:
            yield {"line": text} if text else Rejected("", "empty")
        else:
            yield Rejected(line.rstrip("\n"), "no tab after the id")


def _json(stream: io.TextIOWrapper, path: str) -> Table:
    """Open a file with one object per line, whose columns may differ from row to row, or an array of them."""
    line = next(stream, "")
    if line.lstrip().startswith("["):
        unit, rows = "item", map(_array_item, _array(line + stream.read(), path))
    else:
        unit, rows = "line", map(_object, chain([line] if line else [], stream))
    numbered = enumerate(rows, start=1)
    first = list(islice(numbered, _LOOKED_AT))
    columns = dict.fromkeys(chain.from_iterable(row for _, row in first if not isinstance(row, Rejected)))
    return Table(path, "JSON", [str(name) for name in columns], lambda _: chain(first, numbered), unit)


def _array(text: str, path: str) -> Iterator[Any]:
    try:
        yield from parse_json(text)
    except ValueError as error:
        raise BadInput(
            f"{path} must be a JSON array, as it begins, or one object per line, but is neither: {error}."
        ) from None


def _array_item(item: Any) -> Row | Rejected:
    return item if isinstance(item, dict) else Rejected(json.dumps(item), "not a JSON object")


def _object(line: str) -> Row | Rejected:
    text = line.rstrip("\n")
    if not text.strip():
        return Rejected("", "empty")
    if not is_unicode(text):
        return Rejected(text, "not utf-8")
    try:
        row = parse_json(text)
    except ValueError:
        return Rejected(text, "not JSON")
    return row if isinstance(row, dict) else Rejected(text, "not a JSON object")


def _delimited(
    stream: io.TextIOWrapper, path: str, kind: str, encoding: str, how: Cells
) -> tuple[Table, list[str]]:
    """Open CSV, read strictly, or TSV, in which a quotation mark is text; and say how it is read."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    quoted, named = kind == "CSV", how.header != "no"
    stream.reconfigure(newline="" if quoted else "\n")
    head = list(islice(stream, _LOOKED_AT))
    given = "\t" if how.delimiter == "tab" else how.delimiter
    delimiter = given or (_delimiter(head) if quoted else "\t")
    notes = Counter[str]()
    lines = _cells(chain(head, stream), path, delimiter, notes, quoted=quoted, blank=how.ragged)
    first = list(islice(lines, _LOOKED_AT if how.ragged else 2))
    columns = first.pop(0)[1] if first and named else []
    if not named:
        width = max((len(cells) for _, cells in (first if how.ragged else first[:1])), default=0)
        columns = [str(place + 1) for place in range(width)]
    if how.ragged:
        form, said = f"columns with {'a' if named else 'no'} header, delimiter {delimiter!r}", []
    else:
        marks = f"delimiter {delimiter!r}" if quoted else "quotation marks are text"
        form, said = kind, [marks, *([] if named else ["no header"])]
        _require_one_width(head, delimiter, len(columns), path, quoted=quoted)
    if not how.header:
        _require_names(columns, first[0][1] if first else [], path)
    # Of columns of one name the second is called `text.2`.
    columns = [
        f"{name}.{columns[:at].count(name) + 1}" if name in columns[:at] else name
        for at, name in enumerate(columns)
    ]

    def rows(_: str | None) -> Numbered:
        for line, cells in chain(first, lines):
            row: Row | Rejected = dict(zip(columns, cells, strict=False))
            if len(cells) != len(columns) and not how.ragged:
                ragged = f"{len(cells)} fields instead of {len(columns)}"
                more = len(cells) > len(columns) and quoted
                ragged += "; a field with a comma needs quotes" if more else ""
                row = Rejected(delimiter.join(cells), ragged)
            if how.ragged and not is_unicode("".join(cells)):
                row = Rejected(delimiter.join(cells), f"not {encoding}")
            yield line, row

    return Table(path, form, columns, rows, notes=notes), said


def _require_one_width(head: Sequence[str], delimiter: str, width: int, path: str, *, quoted: bool) -> None:
    """Refuse a delimiter that divides most of the first rows into another number of cells than the header."""
    plain = (line.rstrip("\r\n").split(delimiter) for line in head)
    rows = [row for row in (csv.reader(head, delimiter=delimiter) if quoted else plain) if any(row)]
    other = [len(row) for row in rows[1:] if len(row) != width]
    if other and 2 * len(other) > len(rows) - 1:
        raise BadInput(
            f"{path} must have as many cells in every row as in the first, {width} with the delimiter "
            f"{delimiter!r}, but most of its first rows have others, such as {other[0]}. State the delimiter."
        )


def _cells(
    lines: Iterable[str], path: str, delimiter: str, notes: Counter[str], *, quoted: bool, blank: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of every row with the line on which it begins; blank lines of TSV may be rows."""
    if not quoted:
        for number, line in enumerate(lines, start=1):
            if (text := line.removesuffix("\n").removesuffix("\r")) or blank:
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
    if _KNOWN_NAMES & {name.strip().lower() for name in columns} or not columns:
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
    """Return whether the name of a column looks like a cell: a sentence, a long text or a number."""
    with suppress(ValueError):
        float(name)
        return True
    sentence = len(name.split()) > 3 or name.rstrip().endswith((".", "?", "!", "。", "？", "！"))
    return sentence or len(name) > 60


def _arrow(system: Any, path: str, kind: str) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def opened(file: Any) -> Any:
        if kind == "Parquet":
            return pq.ParquetFile(file)
        opener = pa.ipc.open_file if file.read(6) == b"ARROW1" else pa.ipc.open_stream
        file.seek(0)
        return opener(file)

    def batches(table: Any, column: str | None) -> Any:
        if kind == "Parquet":
            return table.iter_batches(columns=[column] if column else None)
        return table if hasattr(table, "__iter__") else map(table.get_batch, range(table.num_record_batches))

    def rows(column: str | None) -> Numbered:
        with system.open_input_file(path) as file:
            each = (row for batch in batches(opened(file), column) for row in batch.to_pylist())
            yield from enumerate(each, start=1)

    what = f"a complete {kind} file"
    with readable(path, what), system.open_input_file(path) as file:
        table = opened(file)
        schema = table.schema_arrow if kind == "Parquet" else table.schema
    types = dict(zip(schema.names, schema.types, strict=True))
    names = _class_names(schema.metadata or {})
    whole = lambda column: _whole(rows(column), path, what)  # noqa: E731
    return Table(path, kind, list(schema.names), whole, "row", names=names, types=types)


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """The names of class labels, as ``datasets`` writes them beside a schema."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except ValueError:
        return {}
    return {
        key: each["names"] for key, each in features.items() if isinstance(each, dict) and each.get("names")
    }
