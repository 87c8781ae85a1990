"""Caching of corpora: a source is read once for the same files and reading options."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import Progress
from stillhouse.core.identity import canonical
from stillhouse.corpora.read_once import note_path, noted, read_once
from stillhouse.corpora.reading.corpus import ReadOptions, read_texts, reading_of
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.reading.sources import Reading
from stillhouse.corpora.reading.understood import Understood
from stillhouse.corpora.tables import QUARANTINE, write_texts
from stillhouse.values.data import TextTable

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

    What the barrier bars is left out before texts are packed or cut, and the barrier is told the numbers.

    Raises:
        BadInput: As for `read_texts`; nothing is left half-written.
    """
    reading = reading_of(source, options)
    files, label = reading.found.files, reading.label
    note = _note(workspace, reading, options, barrier)

    def read() -> dict[str, Any]:
        left_out = Counter[str]()
        more = {"check": barrier.checking(left_out)} if barrier else {}
        found = read_texts(source, options, reading=reading, **more)
        texts = _counted(found, Progress(f"reading {label}", "rows"))
        origin = {"source": source, "files": len(files), "options": canonical(options)}
        table = write_texts(workspace, label, texts, deduplicate=options.deduplicate, origin=origin)
        _understood(workspace.path(table), reading).say()
        return {"table": table, "left_out": left_out, "source": source}

    made = read_once(workspace, note, read, refresh=refresh)
    if barrier is not None:
        barrier.report("texts", made["left_out"])
    table: TextTable = made["table"]
    return table


def quick_to_ingest(
    workspace: Workspace, source: str, options: ReadOptions, barrier: "Callable[[], Barrier]"
) -> bool:
    """Return whether `ingest` takes seconds: the corpus has been read already, or it is small."""
    reading = reading_of(source, options)
    files = reading.found.files
    if not files and 0 < (options.limit or 0) <= _FEW_TEXTS:
        return True
    if files and sum(file.size for file in files) <= SMALL_BYTES:
        return True
    return noted(workspace, _note(workspace, reading, options, barrier())) is not None


def _note(
    workspace: Workspace, reading: Reading[str], options: ReadOptions, barrier: "Barrier | None"
) -> Path:
    """Return the note of what a source was read into."""
    signature = {"source": reading.source, "files": reading.found.files, "options": options}
    if barrier is not None and barrier.tables:
        signature["barrier"] = barrier.signature
    return note_path(workspace, reading.label, {"version": VERSION, **signature})


def _counted(texts: Iterator[str | Rejected], progress: Progress) -> Iterator[str | Rejected]:
    for done, text in enumerate(texts, start=1):
        if done % 1000 == 0:
            progress(done, None)
        yield text


def _understood(folder: Path, reading: Reading[str]) -> Understood:
    """Describe a corpus as it was understood, with the rows of its table."""
    found = read_manifest(folder)
    reading.aside.update(found["quarantine_reasons"])
    note = [f"reasons in {folder / QUARANTINE}"] if found["quarantined"] else []
    note += ["if it is in another encoding, give --encoding"] if "not utf-8" in reading.aside else []
    texts = reading.taking.read + sum(reading.aside.values())
    made = [f"{reading.rows:,} rows make {texts:,} texts"] if texts != reading.rows else []
    return reading.understood(found["rows"], found["duplicates"], note="; ".join([*made, *note]))
