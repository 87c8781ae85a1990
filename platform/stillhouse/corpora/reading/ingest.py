"""A corpus is read once: what was read is remembered by the source's files and the reading options."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace, locked, read_json, read_manifest, write_json
from stillhouse.core.console import Progress, say
from stillhouse.core.identity import canonical, fingerprint
from stillhouse.corpora.reading.corpus import ReadOptions, hub_name, list_files, read_texts
from stillhouse.corpora.tables import QUARANTINE, write_texts
from stillhouse.corpora.writing import Rejected
from stillhouse.plan.data import Examples, Given, TextTable

VERSION = 1


def ingest(workspace: Workspace, source: str, options: ReadOptions, *, refresh: bool = False) -> TextTable:
    """The table of a corpus; it is read at the first call, and again when a file or an option has changed.

    A hub's data set is remembered by its name alone, since asking for changes needs the network:
    ``refresh`` reads it again.

    Args:
        workspace: Where the table stands.
        source: See `read_texts`.
        options: How to read it.
        refresh: Read it again, whatever is remembered.

    Raises:
        BadInput: See `read_texts`; nothing is left half-written.
    """
    files = [] if hub_name(source) else list_files(source)[1]
    label = _label(source)
    signature = {"version": VERSION, "source": source, "files": files, "options": options}
    note = note_path(workspace, label, signature)
    if not refresh and (found := _remembered(workspace, note, label)) is not None:
        return found
    with locked(note.with_suffix(".lock")):
        if not refresh and (found := _remembered(workspace, note, label)) is not None:
            return found
        origin = {"source": source, "files": len(files), "options": canonical(options)}
        texts = _counted(read_texts(source, options), Progress(f"reading {label}", "rows"))
        table = write_texts(workspace, label, texts, deduplicate=options.deduplicate, origin=origin)
        write_json(note, {"table": table.sha256, "label": label, **origin})
        _tell(workspace.path(table), label)
    return table


def note_path(workspace: Workspace, label: str, signature: Mapping[str, Any]) -> Path:
    """The small file that remembers what a source became."""
    return workspace.root / "sources" / f"{label}-{fingerprint(signature)}.json"


def noted(examples: Examples) -> dict[str, Any]:
    """What is remembered of examples that came with the data."""
    assert isinstance(examples.origin, Given), "others are named by how they are made"
    columns = {name: [table.sha256, table.label] for name, table in examples.columns.items()}
    named = {"columns": columns, "rows": examples.origin.sha256, "label": examples.label}
    return named | ({"values": list(examples.values)} if examples.values else {})


def recalled(workspace: Workspace, remembered: Mapping[str, Any]) -> Examples | None:
    """The examples that were noted; None where a part of them is gone."""
    columns = {name: TextTable(sha, label) for name, (sha, label) in remembered["columns"].items()}
    examples = Examples(
        columns=columns,
        origin=Given(remembered["rows"]),
        label=remembered["label"],
        values=tuple(remembered.get("values", ())),
    )
    whole = all(workspace.finished(table) for table in columns.values()) and workspace.finished(examples)
    return examples if whole else None


def _counted(texts: Iterator[str | Rejected], progress: Progress) -> Iterator[str | Rejected]:
    for done, text in enumerate(texts, start=1):
        if done % 1000 == 0:
            progress(done, None)
        yield text


def _tell(folder: Path, label: str) -> None:
    """What became of every row that was read."""
    found = read_manifest(folder)
    aside = f"{found['quarantined']:,} set aside"
    where = f" (reasons in {folder / QUARANTINE})" if found["quarantined"] else ""
    say(
        f"  {label}: {found['input_rows']:,} rows read, {found['rows']:,} kept, "
        f"{found['duplicates']:,} duplicates, {aside}{where}"
    )


def _remembered(workspace: Workspace, note: Path, label: str) -> TextTable | None:
    if not note.exists():
        return None
    table = TextTable(sha256=read_json(note)["table"], label=label)
    return table if workspace.finished(table) else None


def _label(source: str) -> str:
    """The last part of the source that says something, fit for a file name."""
    name = source.removeprefix("hf:").split(":")[0] if hub_name(source) else source
    parts = [part for part in re.split(r"[/\\]", name) if part and not re.fullmatch(r"[*?.]+|\*\..*", part)]
    stem = parts[-1].removesuffix(".gz").rsplit(".", 1)[0] if parts else ""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:40] or "corpus"
