"""What is told of runs while they go on: the contract of a tracker, and the tail of the workers' spools.

The driver is the only writer. Workers append figures to ``metrics.jsonl`` in their stage's folder, one JSON
object a line (``step``, ``examples``, ``time``, ``metrics``), and `SpoolTail` follows these files.
"""

import contextlib
import json
import platform
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

Key = tuple[str, ...]
"""Which run: (sweep,), (sweep, trial) or (sweep, trial, stage); the parent is the key less its last part."""

CHAMPION_IS = "champion/trial"
"""The figure of a sweep's run that holds the number of its best trial."""
ENDED = ("finished", "stopped early", "failed", "interrupted")
_PACKAGES = "stillhouse torch transformers sentence-transformers ray optuna mlflow numpy faiss-cpu faiss-gpu"


@dataclass(frozen=True, slots=True)
class Row:
    """Figures at one step.

    Attributes:
        step: Optimiser step; a figure has one value a step, and the first one told is kept.
        time: Seconds since the epoch.
        metrics: Figures by name.
    """

    step: int
    time: float
    metrics: Mapping[str, float]


class Tracker(Protocol):
    """Where runs are told. No call waits for a server, and telling the same twice is telling it once."""

    def run(
        self,
        key: Key,
        name: str,
        parameters: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        documents: Mapping[str, object] | None = None,
    ) -> None:
        """Start a run or go on with it. ``parameters`` may be nested; ``documents`` are JSON by file name."""
        ...

    def metrics(self, key: Key, rows: Iterable[Row]) -> None:
        """Add figures."""
        ...

    def artifact(self, key: Key, path: Path, folder: str = "") -> None:
        """Add a file, or the files of a folder, under ``folder``."""
        ...

    def register(
        self,
        key: Key,
        folder: Path,
        name: str,
        alias: str = "champion",
        tags: Mapping[str, str] | None = None,
    ) -> str | None:
        """Register an exported student under ``name``; its version, or None where that is not known yet."""
        ...

    def finish(self, key: Key, state: str = "finished", reason: str = "") -> None:
        """End a run as ``finished``, ``stopped early``, ``failed`` or ``interrupted``."""
        ...

    def close(self, seconds: float = 10.0) -> str:
        """Send what can be sent in that time; one line on what could not, else an empty string."""
        ...


class SpoolTail:
    """Follow the spools of workers and pass on what is new, from one thread of its own.

    A line is passed on when it is whole. A spool that was cut back by a resumed worker is read again from its
    start; the journal drops the steps that it has.
    """

    def __init__(self, forward: Callable[[Key, list[Row]], None], every_s: float = 1.0) -> None:
        """Start the thread.

        Args:
            forward: Takes a run and its new rows, such as `Tracker.metrics`.
            every_s: Seconds between two looks.
        """
        self._forward, self._every_s = forward, every_s
        self._spools: dict[tuple[Key, Path], _Spool] = {}
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow_all, name="spool-tail", daemon=True)
        self._thread.start()

    def follow(self, key: Key, path: Path) -> None:
        """Follow a spool, which need not exist yet; a second call for the same run and file does nothing."""
        self._spools.setdefault((key, path), _Spool(path))

    def poll(self) -> None:
        """Look at every spool now."""
        with self._lock:
            for (key, _), spool in list(self._spools.items()):
                rows = spool.read()
                if rows:
                    self._forward(key, rows)

    def close(self) -> None:
        """Look once more, and end the thread."""
        self._closing.set()
        self._thread.join()
        self.poll()

    def _follow_all(self) -> None:
        while not self._closing.wait(self._every_s):
            self.poll()


class _Spool:
    """One file, and what was read of it: the offset, and the last line as the proof that it still stands."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.last = path, 0, b""

    def read(self) -> list[Row]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset - len(self.last))
                if file.read(len(self.last)) != self.last:
                    self.offset, self.last = 0, b""
                    file.seek(0)
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        if not lines:
            return []
        self.offset, self.last = self.offset + sum(map(len, lines)), lines[-1]
        return [row for line in lines if (row := _row(line)) is not None]


def _row(line: bytes) -> Row | None:
    """A spool's line; None for one that a killed worker left half written and a later one went on in."""
    try:
        told = json.loads(line)
        figures = {"examples": told["examples"], **told["metrics"]}
        return Row(int(told["step"]), float(told["time"]), {k: float(v) for k, v in figures.items()})
    except (ValueError, KeyError, TypeError):
        return None


def flatten(nested: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Parameters by dotted name: ``{"a": {"b": 1}}`` becomes ``{"a.b": "1"}``."""
    flat: dict[str, str] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def provenance() -> dict[str, str]:
    """What ran: the git revision (where it runs from a checkout), Python, and the packages' versions."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in _PACKAGES.split():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[f"version.{name}"] = metadata.version(name)
    describe = ["git", "describe", "--match=", "--always", "--abbrev=40", "--dirty"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(
            describe, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True
        )
        found["git.revision"] = answer.stdout.strip()
    return found
