"""Caching of corpora: a source is read once for the same files and reading options."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import Workspace, locked, read_json, read_manifest
from stillhouse.core.console import Progress
from stillhouse.core.identity import canonical, fingerprint
from stillhouse.core.notes import has_note, write_note
from stillhouse.corpora.reading.corpus import ReadOptions, read_texts, reading_of
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.reading.sources import Reading, SourceFile, corpus_label, source_files
from stillhouse.corpora.reading.understood import Understood, restored
from stillhouse.corpora.tables import QUARANTINE, write_texts
from stillhouse.values.data import Examples, Given, TextTable

if TYPE_CHECKING:
    from stillhouse.corpora.barrier import Barrier

VERSION = 3
SMALL_BYTES = 50_000_000
"""Files of a corpus that are read in seconds."""
_FEW_TEXTS = 50_000


def ingest(
    workspace: Workspace,
    source: str,
    options: ReadOptions,
    *,
    refresh: bool = False,
    barrier: "Barrier | None" = None,
) -> TextTable:
    """Read a corpus into a table, at the first call and again when a file or an option has changed.

    A data set on the hub is cached by its name only, since checking for changes needs the network; use
    ``refresh`` to read it again.

    Args:
        workspace: Workspace for the table.
        source: See `read_texts`.
        options: How to read it.
        refresh: Ignore the cache and read it again.
        barrier: What is measured with and left out, before texts are packed or cut; it is told the numbers.

    Raises:
        BadInput: As for `read_texts`; nothing is left half-written.
    """
    files = source_files(source)
    label, note = _noted(workspace, source, files, options, barrier)
    with locked(note.with_suffix(".lock")):
        if not refresh and (found := _remembered(workspace, note, label)) is not None:
            say_again(read_json(note))
            if barrier is not None:
                barrier.report("texts", read_json(note).get("left_out", {}))
            return found
        origin = {"source": source, "files": len(files), "options": canonical(options)}
        reading = reading_of(source, options)
        left_out = Counter[str]()
        more = {"check": barrier.checking(left_out)} if barrier else {}
        read = read_texts(source, options, reading=reading, **more)
        texts = _counted(read, Progress(f"reading {label}", "rows"))
        table = write_texts(workspace, label, texts, deduplicate=options.deduplicate, origin=origin)
        understood = _understood(workspace.path(table), reading)
        understood.say()
        noted = {"left_out": left_out, "understood": understood.noted()}
        write_note(note, {"table": table.sha256, "label": label, **origin, **noted})
        if barrier is not None:
            barrier.report("texts", left_out)
    return table


def quick_to_ingest(
    workspace: Workspace, source: str, options: ReadOptions, barrier: "Callable[[], Barrier]"
) -> bool:
    """Whether `ingest` takes seconds: the corpus has been read already, or it is small."""
    files = source_files(source)
    if not files and 0 < (options.limit or 0) <= _FEW_TEXTS:
        return True
    if files and sum(file.size for file in files) <= SMALL_BYTES:
        return True
    label, note = _noted(workspace, source, files, options, barrier())
    return _remembered(workspace, note, label) is not None


def note_path(workspace: Workspace, label: str, signature: Mapping[str, Any]) -> Path:
    """Return the path of the small file that caches what a source was read into."""
    return workspace.root / "sources" / f"{label}-{fingerprint(signature)}.json"


def describe_examples(examples: Examples) -> dict[str, Any]:
    """Describe examples that came with the data, for a cache file."""
    assert isinstance(examples.origin, Given), "others are identified by how they are made"
    columns = {name: [table.sha256, table.label] for name, table in examples.columns.items()}
    named = {"columns": columns, "rows": examples.origin.sha256, "label": examples.label}
    return named | ({"values": list(examples.values)} if examples.values else {})


def restore_examples(workspace: Workspace, remembered: Mapping[str, Any]) -> Examples | None:
    """Restore the examples of a cache file; None if a part of them no longer exists."""
    columns = {name: TextTable(sha, label) for name, (sha, label) in remembered["columns"].items()}
    examples = Examples(
        columns=columns,
        origin=Given(remembered["rows"]),
        label=remembered["label"],
        values=tuple(remembered.get("values", ())),
    )
    whole = all(workspace.finished(table) for table in columns.values()) and workspace.finished(examples)
    return examples if whole else None


def read_once(
    workspace: Workspace,
    note: Path,
    read: Callable[[], tuple[Examples, Understood | None]],
    *,
    refresh: bool = False,
) -> Examples:
    """Restore the examples that a note remembers, or read them and write the note; other processes wait.

    Args:
        workspace: Holds the examples.
        note: The cache file; see `note_path`.
        read: Reads and writes the examples, and says what it took the source for; from the note it is said
            again.
        refresh: Ignore the note.
    """
    with locked(note.with_suffix(".lock")):
        noted = read_json(note) if has_note(note) and not refresh else None
        known = restore_examples(workspace, noted) if noted else None
        if known is not None and noted is not None:
            say_again(noted)
            return known
        made, understood = read()
        if understood is not None:
            understood.say()
        write_note(note, describe_examples(made) | ({"understood": understood.noted()} if understood else {}))
        return made


def say_again(noted: Mapping[str, Any]) -> None:
    """Say what a source was taken for when it was read."""
    found = noted.get("understood") or []
    for each in found if isinstance(found, list) else [found]:
        restored(each).say()


def _noted(
    workspace: Workspace,
    source: str,
    files: list[SourceFile],
    options: ReadOptions,
    barrier: "Barrier | None",
) -> tuple[str, Path]:
    """Return the label of a source, and the note of what it was read into."""
    label, signature = corpus_label(source), {"source": source, "files": files, "options": options}
    if barrier is not None and barrier.tables:
        signature["barrier"] = barrier.signature
    return label, note_path(workspace, label, {"version": VERSION, **signature})


def _counted(texts: Iterator[str | Rejected], progress: Progress) -> Iterator[str | Rejected]:
    for done, text in enumerate(texts, start=1):
        if done % 1000 == 0:
            progress(done, None)
        yield text


def _understood(folder: Path, reading: Reading[str]) -> Understood:
    """What a corpus was taken for, with the rows of its table."""
    found = read_manifest(folder)
    reading.aside.update(found["quarantine_reasons"])
    note = [f"reasons in {folder / QUARANTINE}"] if found["quarantined"] else []
    note += ["if it is in another encoding, give --encoding"] if "not utf-8" in reading.aside else []
    texts = reading.taking.read + sum(reading.aside.values())
    made = [f"{reading.rows:,} rows make {texts:,} texts"] if texts != reading.rows else []
    return reading.understood(found["rows"], found["duplicates"], note="; ".join([*made, *note]))


def _remembered(workspace: Workspace, note: Path, label: str) -> TextTable | None:
    if not has_note(note):
        return None
    table = TextTable(sha256=read_json(note)["table"], label=label)
    return table if workspace.finished(table) else None
