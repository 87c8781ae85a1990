"""Helper that reads a stage's metrics log in the tests."""

from pathlib import Path
from typing import Any

from stillhouse.core.json_text import parse_line


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read every complete line of a metrics log, even while it is being written; none may be damaged."""
    lines = path.read_bytes().splitlines(keepends=True)
    entries = [parse_line(line) for line in lines if line.endswith(b"\n")]
    assert None not in entries, path
    return [entry for entry in entries if entry is not None]
