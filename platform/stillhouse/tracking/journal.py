"""A tracker's journal on disk: nothing is lost while a server is down."""

import hashlib
import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_json, write_json
from stillhouse.tracking import Key

Entry = dict[str, Any]
_SUBJECT: dict[str, tuple[str, ...]] = {
    "run": (),
    "describe": ("subject",),
    "views": (),
    "artifact": ("folder", "path"),
    "register": ("name", "alias"),
}
"""Kind of an entry to the fields that tell its subjects apart."""
_SMALL = 8_000_000


class Journal:
    """JSON lines, each an entry with ``do``, ``key`` and ``time`` (ms), and the position of each destination.

    Nothing is written twice, so running the same command again leaves the journal as it was:

    * ``metrics``: a metric of a run has one value per step, the first one (a resumed worker repeats itself);
    * ``state``: written when it changes; a new child reopens its ended parents;
    * ``run``, ``describe``, ``views``, ``artifact``, ``register``: written when the content differs from the
      last entry on the same subject.

    Attributes:
        id: Distinguishes this journal's runs from another's of the same name, on a shared server.
    """

    def __init__(self, folder: Path) -> None:
        """Open the journal in ``folder``, or create it. A last line that was cut by a kill is removed."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / "journal.jsonl"
        self._positions, self._refusals = folder / "confirmed.json", folder / "refused.jsonl"
        identity = folder / "identity.json"
        if not identity.exists():
            write_json(identity, {"journal": uuid.uuid4().hex[:16]})
        self.id = str(read_json(identity)["journal"])
        self._lock = threading.Lock()
        self._steps: dict[tuple[Key, str], set[int]] = {}
        self._digests: dict[tuple[Any, ...], str] = {}
        self._states: dict[Key, str] = {}
        self._file = self.path.open("a+b")
        self._file.seek(0)
        self.size = 0
        for line in self._file:
            if line.endswith(b"\n"):
                self.size += len(line)
                self._news(json.loads(line))
        self._file.truncate(self.size)

    def append(self, **entry: Any) -> bool:
        """Write the new parts of an entry.

        Returns:
            Whether anything was new.
        """
        with self._lock:
            news = self._news({"time": round(time.time() * 1000), **entry})
            for new in news:
                line = json.dumps(new, separators=(",", ":"), default=str).encode() + b"\n"
                self._file.write(line)
                self._file.flush()
                self.size += len(line)
            return bool(news)

    def read(self, position: int, most: int = 500) -> list[tuple[Entry, int]]:
        """Read up to ``most`` entries from a byte offset, each with the offset where it ends."""
        entries: list[tuple[Entry, int]] = []
        with self.path.open("rb") as file:
            file.seek(position)
            while len(entries) < most and (line := file.readline()).endswith(b"\n"):
                position += len(line)
                entries.append((json.loads(line), position))
        return entries

    def waiting(self, position: int) -> int:
        """Count the entries from a byte offset."""
        with self.path.open("rb") as file:
            file.seek(position)
            return file.read().count(b"\n")

    def confirmed(self, destination: str) -> int:
        """Return the offset up to which a destination has accepted everything."""
        return min(self._read_positions().get(_digest(destination), 0), self.size)

    def confirm(self, destination: str, position: int) -> None:
        """Record that a destination has accepted everything up to an offset."""
        positions = self._read_positions() | {_digest(destination): position}
        temporary = self._positions.with_suffix(".tmp")
        temporary.write_text(json.dumps(positions))
        os.replace(temporary, self._positions)

    def refuse(self, entries: list[Entry], reason: str) -> None:
        """Set aside entries that a destination will never accept, with its reason."""
        with self._refusals.open("a") as file:
            for entry in entries:
                file.write(json.dumps({"reason": reason, **entry}) + "\n")

    def versions(self) -> dict[str, str]:
        """Return registered versions by ``name@weights``."""
        path = self.folder / "registered.json"
        return dict(json.loads(path.read_bytes())) if path.exists() else {}

    def keep_version(self, name: str, weights: str, version: str) -> None:
        """Record the version of some weights."""
        write_json(self.folder / "registered.json", {**self.versions(), f"{name}@{weights}": version})

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _read_positions(self) -> dict[str, int]:
        return dict(json.loads(self._positions.read_bytes())) if self._positions.exists() else {}

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
        digest = _digest(json.dumps({**entry, "time": 0}, sort_keys=True, default=str))
        broken = kind == "run" and self._states.get(key) in ("failed", "interrupted")
        if self._digests.get(subject) == digest and not broken:
            return []
        self._digests[subject] = digest
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
