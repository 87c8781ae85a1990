"""The metrics spool: one JSON object a line, appended by rank 0, read by whoever tracks the run."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"


class Spool:
    """An append-only file of metrics that survives a kill at any moment.

    Lines are ordered by step. What a killed process wrote after its last checkpoint is cut when training
    goes on from there, and is written again, so that no step appears twice.

    Args:
        path: The file.
        after: Step of the checkpoint that training goes on from; later lines and a torn last line are cut.
    """

    def __init__(self, path: Path, *, after: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        keep = _length_until(path, after) if path.exists() else 0
        self._file = path.open("ab")
        if self._file.tell() != keep:
            self._file.truncate(keep)

    def append(self, step: int, examples: int, metrics: Mapping[str, float]) -> None:
        """Write one line, and hand it to the operating system."""
        line = {"step": step, "examples": examples, "time": time.time(), "metrics": dict(metrics)}
        self._file.write((json.dumps(line) + "\n").encode())
        self._file.flush()

    def sync(self) -> None:
        """Bring the file to the disk; done before a checkpoint that promises these lines."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_spool(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a spool, also while it is written; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _length_until(path: Path, step: int) -> int:
    length = 0
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n") or json.loads(line)["step"] > step:
            break
        length += len(line)
    return length
