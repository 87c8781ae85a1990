"""The files of a source, and what becomes of its rows: what every reader of a kind of data begins with.

A source is a file, a folder or a glob of them; MS MARCO's folder, whose passages and training queries are the
texts; the same under ``s3://`` and ``gs://``, with options such as ``?region=eu-west-1``; or
``hf:name[:config][:split]``.
"""

import fnmatch
import glob
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from stillhouse.core.errors import BadInput
from stillhouse.core.redaction import redacted, remember
from stillhouse.corpora.published.msmarco import text_files
from stillhouse.corpora.reading.languages import recognised
from stillhouse.corpora.reading.row_limit import Taking
from stillhouse.corpora.reading.rows import (
    TABLES,
    Cells,
    Numbered,
    Rejected,
    Table,
    hub_table,
    is_unicode_row,
    open_table,
    sniffed_kind,
    table_kind,
    without_packing,
)
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.reading.understood import Understood

T = TypeVar("T")
_REMOTE = ("s3://", "gs://", "file://")
_HUB = "hf:"
_OPTIONS = re.compile(r"\?[a-z_]+=[^?&*\[\]]*(&[a-z_]+=[^?&*\[\]]*)*$")
"""The options of a file system at the end of an address."""
CORPUS = "corpus"
_TEXT_KINDS = (CORPUS, "file of labelled text", "file of scores", "file of pairs")
_ABOUT = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")
_WIKI = re.compile(r"(.+_)?wiki_\d+")


@dataclass(frozen=True)
class SourceFile:
    """A file of a corpus, with what is needed to read it and to detect changes.

    Its time of modification is in nanoseconds since 1970, 0 where the file system does not report it.
    """

    path: str
    size: int
    modified: int


class Files(NamedTuple):
    """The pyarrow file system of a source, its files by name, and the names of those that are skipped.

    A data set on the hub has none.
    """

    system: Any
    files: list[SourceFile]
    skipped: list[str]


class Reading(Generic[T]):
    """One source while it is read: its rows, which of them are taken, and where the others went.

    Args:
        source: The source.
        kind: What it is, for messages.
        schema: What is stated of its columns, rows and language.
        count: Number of rows to take, see `counting`; None takes all.
        distinct: Whether equal rows count once.
        taking: How rows are taken, where it is in another way.
        label: What messages call the source; empty makes a name of its address.
    """

    def __init__(
        self,
        source: str,
        kind: str,
        schema: Schema,
        count: int | None = None,
        *,
        distinct: bool = True,
        taking: Taking[Any] | None = None,
        label: str = "",
    ) -> None:
        self.source, self.kind, self.schema = source, kind, schema
        self.label, self.language = label or corpus_label(source), schema.language
        stream = hub_name(source) is not None
        self.taking = taking or Taking[Any](count, stream=stream, distinct=distinct)
        self.aside, self.labels = Counter[str](), Counter[str]()
        self.examples: dict[str, str] = {}
        self.files = self.rows = 0
        self._skipped: list[str] = []
        self._forms, self._unused = dict[str, None](), dict[str, None]()
        self._roles: dict[str, dict[str, None]] = {}
        self._notes: list[Mapping[str, int]] = []

    @cached_property
    def found(self) -> "Files":
        """The files of the source, see `list_files`."""
        return list_files(self.source, self.kind)

    def tables(self, encoding: str = "utf-8") -> Iterator[Table]:
        """Open the files of the source, one after the other; a corpus may be text without columns.

        Raises:
            BadInput: There is no file, or one of another form.
        """
        if (hub := hub_name(self.source)) is not None:
            yield hub_table(self.source, *hub)
            return
        system, files, self._skipped = self.found
        for file in files:
            form, schema = table_kind(file.path), self.schema
            if self.kind != CORPUS and not form:
                raise BadInput(
                    f"a {self.kind} must be one of {', '.join(TABLES)}, but got {file.path}. Convert it."
                )
            if file.size:
                form = sniffed_kind(system, file.path, encoding) if self.kind == CORPUS else form
                yield open_table(system, file.path, form, encoding, Cells(schema.delimiter, schema.header))

    def opened(self, table: Table, roles: Mapping[str, str], unused: Iterable[str] = ()) -> None:
        """Note the next table, with the column of each role and the columns that are not used."""
        self.files += 1
        self._forms.setdefault(table.form)
        for role, column in roles.items():
            self._roles.setdefault(role, {}).setdefault(column)
        self._unused |= dict.fromkeys(unused)
        self._notes.append(table.notes)

    def rows_of(self, table: Table) -> Numbered:
        """The rows of a table that are not empty, counted; those that are no Unicode are rejected."""
        for number, row in self.schema.rows(table):
            if isinstance(row, Rejected) and row.reason == "empty":
                continue
            self.rows += 1
            known = isinstance(row, Rejected) or is_unicode_row(row)
            yield number, row if known else Rejected("", "not Unicode")

    def taken(self, rows: Iterable[T | Rejected], key: Callable[[T], bytes]) -> Iterator[T]:
        """Those of some rows that can be used and are taken; the key tells rows apart."""
        return self.usable(self.taking.of(rows, key))

    def usable(self, rows: Iterable[T | Rejected]) -> Iterator[T]:
        """Those of some rows that can be used; the others are set aside, and counted by their reasons."""
        for row in rows:
            if isinstance(row, Rejected):
                self.aside[row.reason] += 1
            else:
                yield row

    def understood(
        self, kept: int, duplicates: int = 0, *, rows: int | None = None, limit: str = "", note: str = ""
    ) -> Understood:
        """Describe the source as it was understood.

        Args:
            kept: Rows that are kept.
            duplicates: Rows that are equal to others, beyond those that a limit left out.
            rows: Rows that were read, where others have been made of them.
            limit: Which rows are kept, in words, where it is not the count that leaves some out.
            note: What else there is to say of the rows.
        """
        taking, aside = self.taking, dict(self.aside.most_common())
        limit = limit or taking.said(kept)
        counted = sum((Counter(notes) for notes in self._notes), Counter[str]())
        notes = [*([note] if note else []), *(f"{n:,} {what}" for what, n in counted.items() if n)]
        return Understood(
            source=self.label,
            form=" and ".join(self._forms),
            files=self.files,
            language=self.language or recognised(self.examples.values()),
            read=taking.read + sum(aside.values()) if rows is None else rows,
            kept=kept,
            duplicates=duplicates + (0 if limit else taking.read - taking.taken),
            aside=aside,
            limit=limit,
            note="; ".join(notes),
            roles={role: " and ".join(columns) for role, columns in self._roles.items()},
            labels=dict(self.labels),
            unused=tuple(self._unused),
            skipped=tuple(self._skipped),
            examples=dict(self.examples),
        )


def corpus_label(source: str) -> str:
    """Make a label from the last meaningful part of the source, fit for a file name."""
    name = source.removeprefix("hf:").split(":")[0] if hub_name(source) else split_options(source)[0]
    name = redacted(name)
    parts = [part for part in re.split(r"[/\\]", name) if part and not re.fullmatch(r"[*?.]+|\*\..*", part)]
    stem = parts[-1].removesuffix(".gz").rsplit(".", 1)[0] if parts else ""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:40] or "corpus"


def list_files(source: str, kind: str = CORPUS) -> Files:
    """List the files of a source by name; a data set on the hub has none.

    Files and folders whose names start with ``.`` or ``_`` are skipped, and so are the files of a folder of
    text that have no known suffix.

    Raises:
        BadInput: If there are no files, or they cannot be listed.
    """
    from pyarrow import fs

    kept, skipped = list[SourceFile](), list[str]()
    if hub_name(source):
        return Files(None, kept, skipped)
    remember(source)
    try:
        system, files = (_remote_files if source.startswith(_REMOTE) else _local_files)(source, kind)
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{source} must be readable, but listing it failed: {error}.") from error
    root = split_options(source)[0].rstrip("/")
    folder = (not glob.has_magic(root) and len(files) != 1) or Path(root).is_dir()
    for file in sorted(files, key=lambda file: str(file.path)):
        if file.type != fs.FileType.File:
            continue
        below = (
            str(file.path).rpartition(f"/{Path(root).name}/")[2].split("/") if folder else [file.base_name]
        )
        if any(name.startswith((".", "_")) for name in below):
            continue
        if folder and kind in _TEXT_KINDS and not _has_known_form(file.base_name):
            skipped.append("/".join(below))
        else:
            kept.append(SourceFile(file.path, int(file.size), int(file.mtime_ns or 0)))
    if not kept:
        known, only = (" of a known form", f"only {', '.join(skipped[:5])}") if skipped else ("", "none")
        raise BadInput(f"a {kind} must have at least one file{known}, but {source} has {only}. Check it.")
    if all(file.size == 0 for file in kept):
        raise BadInput(f"a {kind} must have at least one nonempty file, but those of {source} are all empty.")
    return Files(system, kept, skipped)


def _has_known_form(name: str) -> bool:
    """Return whether a file in a folder is text to read; others lie beside it in a clone of a data set."""
    known = table_kind(name) or without_packing(name).endswith((".txt", ".text"))
    return bool(known or _WIKI.fullmatch(without_packing(name))) and name not in _ABOUT


def hub_name(source: str) -> tuple[str, str | None, str] | None:
    """Parse name, configuration and split of an ``hf:`` source; None for any other source.

    Raises:
        BadInput: If the name is missing, or there are too many parts.
    """
    if not source.startswith(_HUB):
        return None
    name, *more = source.removeprefix(_HUB).split(":")
    if not name or len(more) > 2:
        raise BadInput(
            f"a corpus on the hub must be given as hf:name[:config][:split], but got {source!r}. Write "
            "hf:name::split if there is no config."
        )
    config, split = [*more, "", ""][:2]
    return name, config or None, split or "train"


def _local_files(source: str, kind: str) -> tuple[Any, list[Any]]:
    from pyarrow import fs

    system = fs.LocalFileSystem()
    path = Path(source).expanduser().absolute()
    if path.is_dir():
        marco = text_files(path)
        if marco:
            return system, [system.get_file_info(str(file)) for file in marco]
        return system, list(system.get_file_info(fs.FileSelector(str(path), recursive=True)))
    if path.exists():
        return system, [system.get_file_info(str(path))]
    matches = glob.glob(str(path), recursive=True)
    if not matches:
        raise BadInput(
            f"the {kind} {source!r} does not exist. Give a file, a folder, a glob, s3://…, gs://…"
            f"{' or hf:name' if kind == 'corpus' else ''}."
        )
    return system, list(system.get_file_info(sorted(set(matches))))


def _remote_files(source: str, kind: str) -> tuple[Any, list[Any]]:
    from pyarrow import fs

    address, options = split_options(source)
    folder, parts = _before_wildcards(address)
    system, path = fs.FileSystem.from_uri(folder + options)
    info = system.get_file_info(path)
    absent = BadInput(f"the {kind} {source!r} does not exist. Check the address.")
    if info.type == fs.FileType.NotFound or (parts and info.type == fs.FileType.File):
        raise absent
    if info.type == fs.FileType.File:
        return system, [info]
    files = system.get_file_info(fs.FileSelector(path, recursive=len(parts) != 1 or parts == ["**"]))
    if not parts:
        return system, files
    start = len(path.rstrip("/")) + 1
    matching = [file for file in files if path_matches(file.path[start:].split("/"), parts)]
    if not matching:
        raise absent
    return system, matching


def split_options(source: str) -> tuple[str, str]:
    """Split off the options of a file system, such as ``?region=eu-west-1``; without any they are empty.

    A ``?`` is otherwise a wildcard, as in ``part-?.txt``: options begin at a ``?`` after which nothing but
    ``name=value``, joined by ``&`` and without wildcards, follows.
    """
    found = _OPTIONS.search(source)
    return (source[: found.start()], found[0]) if found else (source, "")


def path_matches(names: list[str], parts: list[str]) -> bool:
    """Return whether a path matches a glob, both in parts; the rules are those of `glob.glob`.

    No wildcard matches a ``/``, ``**`` matches any number of folders, and names that start with a ``.`` are
    matched only by parts that do.
    """
    if not parts:
        return not names
    if not names:
        return all(part == "**" for part in parts)
    if names[0].startswith(".") and not parts[0].startswith("."):
        return parts[0] == "**" and path_matches(names, parts[1:])
    if parts[0] == "**":
        return path_matches(names, parts[1:]) or path_matches(names[1:], parts)
    return fnmatch.fnmatchcase(names[0], parts[0]) and path_matches(names[1:], parts[1:])


def _before_wildcards(address: str) -> tuple[str, list[str]]:
    """The folder of an address before its first wildcard, and the parts of the glob below it."""
    scheme, _, rest = address.partition("://")
    parts = rest.split("/")
    first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return f"{scheme}://{'/'.join(parts[:first])}", parts[first:]
