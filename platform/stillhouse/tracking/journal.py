"""A tracker's journal on disk: nothing is lost while a server is down."""

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import remove_leftovers
from stillhouse.core.console import warn
from stillhouse.core.json_text import json_line, parse_line
from stillhouse.core.notes import read_note, write_note
from stillhouse.core.redaction import redacted, redacted_json
from stillhouse.tracking import ENDED_WELL, Key

Entry = dict[str, Any]
_SUBJECT: dict[str, tuple[str, ...]] = {
    "run": (),
    "describe": ("subject",),
    "views": (),
    "artifact": ("folder", "path"),
    "register": ("name", "alias"),
}
"""Kind of an entry to the fields that tell its subjects apart."""
_FIELDS: dict[str, set[str]] = {
    "run": {"name", "parameters", "tags", "documents"},
    "metrics": {"rows"},
    "describe": {"subject", "tags", "name", "note"},
    "views": {"views"},
    "artifact": {"path", "folder", "stamp"},
    "state": {"state"},
    "register": {"name", "alias", "path", "weights", "tags"},
}
"""Kind of an entry to the fields that it must have."""
LOST = "lost"
"""What stands in for the kind of a damaged entry."""
NAME = "journal.jsonl"
"""The journal's file in a sweep's folder."""
_CONFIRMED, IDENTITY = "confirmed.json", "identity.json"
_SMALL = 8_000_000


class Journal:
    """JSON lines, each an entry with ``do``, ``key`` and ``time`` (ms), and the position of each destination.

    Nothing is written twice, so running the same command again leaves the journal as it was:

    * ``metrics``: a metric of a run has one value per step, the first one (a resumed worker repeats itself);
    * ``state``: written when it changes; a new child reopens its ended parents;
    * ``run``, ``describe``, ``views``, ``artifact``, ``register``: written when the content differs from the
      last entry on the same subject; no ``run`` once it ended well, so that it is not opened again.

    Attributes:
        id: Distinguishes this journal's runs from another's of the same name, on a shared server.
    """

    def __init__(self, folder: Path) -> None:
        """Open the journal in ``folder``, or create it.

        A last line that was cut by a kill is removed, and so are temporary files of killed processes. What is
        damaged is reported, and recorded anew where it is said once more.
        """
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        self.folder, self.path = folder, folder / NAME
        self._positions, self.refusals = folder / _CONFIRMED, folder / "refused.jsonl"
        if not self.path.exists() and (folder / IDENTITY).exists():
            warn(f"{self.path} is lost: what is known of this sweep's runs is recorded and sent once more.")
        self.id = _identity(folder)
        self._lock = threading.Lock()
        self._steps: dict[tuple[Key, str], set[int]] = {}
        self._digests: dict[tuple[Any, ...], tuple[str, Any]] = {}
        self._states: dict[Key, str] = {}
        self._file = self.path.open("a+b")
        self._file.seek(0)
        self.size = damaged = 0
        for line in self._file:
            if line.endswith(b"\n"):
                self.size += len(line)
                entry = _parsed(line)
                damaged += entry is None
                if entry is not None:
                    self._news(entry)
        self._file.truncate(self.size)
        if damaged:
            warn(
                f"{damaged} damaged lines of {self.path} are skipped: what they recorded is missing from the "
                "runs unless it is recorded again."
            )

    def append(self, **entry: Any) -> bool:
        """Write the new parts of an entry; return whether there were any."""
        with self._lock:
            news = self._news({"time": round(time.time() * 1000), **redacted_json(entry)})
            for new in news:
                line = json_line(new)
                self._file.write(line)
                self._file.flush()
                self.size += len(line)
            return bool(news)

    def read(self, position: int, most: int = 500) -> list[tuple[Entry, int]]:
        """Read up to ``most`` entries from a byte offset, each with the offset where it ends.

        A damaged line is an entry with ``do`` = ``lost`` and nothing else.
        """
        entries: list[tuple[Entry, int]] = []
        with self.path.open("rb") as file:
            file.seek(position)
            while len(entries) < most and (line := file.readline()).endswith(b"\n"):
                position += len(line)
                entries.append((_parsed(line) or {"do": LOST}, position))
        return entries

    def waiting(self, positions: Mapping[tuple[str, ...], int]) -> int:
        """Count the entries that lie behind the position of one of their kinds."""
        found, at = 0, min(positions.values())
        while read := self.read(at):
            for entry, at in read:
                found += any(at > position and entry["do"] in kinds for kinds, position in positions.items())
        return found

    def confirmed(self, destination: str) -> int:
        """Return the offset up to which a destination has accepted everything."""
        return min(self._read_positions().get(_digest(destination), 0), self.size)

    def confirm(self, destination: str, position: int) -> None:
        """Record that a destination has accepted everything up to an offset."""
        positions = self._read_positions() | {_digest(destination): position}
        write_note(self._positions, positions)

    def refuse(self, entries: list[Entry], reason: str) -> None:
        """Set aside entries that a destination will never accept, with its reason."""
        with self.refusals.open("a") as file:
            for entry in entries:
                file.write(json.dumps({"reason": redacted(reason), **entry}) + "\n")

    def versions(self) -> dict[str, str]:
        """Return registered versions by ``name@weights``."""
        found = read_note(self.folder / "registered.json", "The server knows the versions.") or {}
        return {name: str(version) for name, version in found.items()}

    def keep_version(self, name: str, weights: str, version: str) -> None:
        """Record the version of some weights."""
        write_note(self.folder / "registered.json", {**self.versions(), f"{name}@{weights}": version})

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._file.close()

    def _read_positions(self) -> dict[str, int]:
        found = read_note(self._positions, "Everything is sent again, which changes nothing.") or {}
        return {name: value for name, value in found.items() if isinstance(value, int)}

    def _news(self, entry: Entry) -> list[Entry]:
        """Reduce an entry to its new parts, and remember them."""
        kind, key = entry["do"], tuple(entry["key"])
        if kind == "metrics":
            rows = [new for row in entry["rows"] if (new := self._new_metrics(key, row))]
            return [{**entry, "rows": rows}] if rows else []
        if kind == "state":
            new = self._states.get(key) != entry["state"]
            self._states[key] = entry["state"]
            return [entry] if new else []
        subject = (kind, key, *(entry[name] for name in _SUBJECT[kind]))
        told = _digest(json.dumps({**entry, "time": 0}, sort_keys=True, default=str)), entry["time"]
        state = self._states.get(key) if kind == "run" else None
        known = self._digests.get(subject, ("", None))
        # A failed run that starts again has another time; one that is only reported again has the same.
        again = state == "interrupted" or (state == "failed" and known != told)
        if state in ENDED_WELL or (known[0] == told[0] and not again):
            return []
        self._digests[subject] = told
        return [*(self._reopened(key, entry["time"]) if kind == "run" else []), entry]

    def _reopened(self, key: Key, at: int) -> list[Entry]:
        self._states[key] = "running"
        parents = [key[:depth] for depth in range(1, len(key)) if self._states.get(key[:depth]) != "running"]
        for parent in parents:
            self._states[parent] = "running"
        return [{"do": "state", "key": parent, "state": "running", "time": at} for parent in parents]

    def _new_metrics(self, key: Key, row: list[Any]) -> list[Any]:
        step, at, metrics = row
        new = {}
        for name, value in metrics.items():
            steps = self._steps.setdefault((key, name), set())
            if step not in steps:
                steps.add(step)
                new[name] = value
        return [step, at, new] if new else []


def _identity(folder: Path) -> str:
    """Return the journal's id, without which runs would be made a second time."""
    path = folder / IDENTITY
    known = (read_note(path, "") or {}).get("journal")
    if isinstance(known, str) and known:
        return known
    if (folder / NAME).exists():
        warn(f"{path} is lost: the runs of this sweep are recorded anew under another id.")
    journal = uuid.uuid4().hex[:16]
    write_note(path, {"journal": journal})
    return journal


def _parsed(line: bytes) -> Entry | None:
    """Parse a line of the journal; None if it is damaged."""
    try:
        entry = parse_line(line) or {}
        needed = _FIELDS[entry["do"]]
        whole = isinstance(entry["key"], list) and isinstance(entry["time"], int) and needed <= set(entry)
    except (KeyError, TypeError):
        return None
    rows = entry.get("rows", [])
    whole = whole and isinstance(rows, list) and all(isinstance(r, list) and len(r) == 3 for r in rows)
    return entry if whole and all(isinstance(row[2], dict) for row in rows) else None


def stamp(path: Path) -> str:
    """Identify the content of a file or folder: by its bytes, or by size and time where it is large."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    lines = []
    for file in files:
        status = file.stat()
        large = status.st_size > _SMALL
        content = f"{status.st_size}-{status.st_mtime_ns}" if large else _digest(file.read_bytes())
        lines.append(f"{file.relative_to(path)}={content}")
    return _digest("\n".join(lines))


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]
