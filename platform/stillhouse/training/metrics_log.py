"""The metrics log: one JSON object per line, appended by rank 0, read by whoever tracks the run."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"


class MetricsLog:
    """An append-only file of metrics that survives a kill at any moment.

    Lines are ordered by step. Lines that a killed process wrote after its last checkpoint are removed when
    training continues from there, and are written again, so that no step appears twice.

    Args:
        path: The file.
        after: Step of the checkpoint that training continues from; later lines and an incomplete last line
            are removed.
    """

    def __init__(self, path: Path, *, after: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        keep = _length_until(path, after) if path.exists() else 0
        self._file = path.open("ab")
        if self._file.tell() != keep:
            self._file.truncate(keep)

    def append(self, step: int, examples: int, metrics: Mapping[str, float]) -> None:
        """Write one line, and pass it to the operating system."""
        line = {"step": step, "examples": examples, "time": time.time(), "metrics": dict(metrics)}
        self._file.write((json.dumps(line) + "\n").encode())
        self._file.flush()

    def sync(self) -> None:
        """Sync the file to the disk, before a checkpoint that relies on these lines."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the complete lines of a log from its start; none if there is no file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _length_until(path: Path, step: int) -> int:
    length = 0
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n") or json.loads(line)["step"] > step:
            break
        length += len(line)
    return length
