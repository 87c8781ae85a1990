"""The metrics log: one JSON object per line, appended by rank 0, read by whoever tracks the run.

Its lines come every so many steps, the same in every run. How far a stage is in between is told by its pulse.
"""

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stillhouse.core.artifacts import CHECKPOINTS
from stillhouse.core.json_text import json_line, parse_line

NAME = "metrics.jsonl"
PULSE = "pulse.json"
"""File of a stage's pulse, beside its checkpoints, with which it goes."""
PULSE_S = 5.0
"""Seconds between two beats."""


class MetricsLog:
    """An append-only file of metrics that survives a kill at any moment.

    Lines are ordered by step. Lines that a killed process wrote after its last checkpoint, and an incomplete
    last one, are removed when training continues from there, and are written again, so that no step appears
    twice.
    """

    def __init__(self, path: Path, *, after: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What is not a file, such as /dev/null, is only written to.
        if path.is_file():
            kept = _until(path, after)
            if kept != path.read_bytes():
                # In place: whoever tails the file goes on reading it.
                with path.open("r+b") as file:
                    file.write(kept)
                    file.truncate()
        self._file = path.open("ab")

    def append(self, step: int, examples: int, metrics: Mapping[str, float]) -> None:
        """Write one line, and pass it to the operating system."""
        line = {"step": step, "examples": examples, "time": time.time(), "metrics": dict(metrics)}
        self._file.write(json_line(line))
        self._file.flush()

    def sync(self) -> None:
        """Sync the file to the disk, before a checkpoint that relies on these lines."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Pulse:
    """Notes every few seconds how many examples a stage has seen.

    A step may take a second and more, and a line of the log comes every 50 steps.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / CHECKPOINTS / PULSE
        self._last = -math.inf
        # What a killed process has seen since its last checkpoint is seen again.
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def due(self) -> bool:
        """Return whether the last beat was some seconds ago, or there was none."""
        return time.monotonic() - self._last >= PULSE_S

    def beat(self, examples: int, *, evaluating: bool = False) -> None:
        """Note how many examples have been seen. Training does not end because this cannot be written."""
        self._last = time.monotonic()
        beat = {"examples": examples, "time": time.time(), "evaluating": evaluating}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_bytes(json_line(beat))


class Beat(NamedTuple):
    """A beat of a stage's pulse: examples so far, seconds since the epoch, whether an evaluation began."""

    examples: int
    time: float
    evaluating: bool = False


def read_beat(folder: Path) -> Beat | None:
    """Read the last beat of the stage of a folder; None if there is none."""
    with contextlib.suppress(OSError):
        if beat := parse_line((folder / CHECKPOINTS / PULSE).read_bytes()):
            return Beat(beat["examples"], beat["time"], bool(beat.get("evaluating")))
    return None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the complete lines of a log from its start; none if there is no file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if (entry := parsed(line)) is not None:
                yield entry


def parsed(line: bytes) -> dict[str, Any] | None:
    """Parse one line; None if it is incomplete or not of a metrics log."""
    entry = parse_line(line) if line.endswith(b"\n") else None
    whole = entry is not None and isinstance(entry.get("step"), int) and "metrics" in entry
    return entry if whole else None


def _until(path: Path, step: int) -> bytes:
    """Return the lines until a step."""
    kept = []
    for line in path.read_bytes().splitlines(keepends=True):
        if (entry := parsed(line)) is not None:
            if entry["step"] > step:
                break
            kept.append(line)
    return b"".join(kept)
