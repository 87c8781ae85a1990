"""The record of every opening of a locked test suite."""

import json
import time

from stillhouse.artifacts import Workspace


def record_opening(workspace: Workspace, suite: str, what: str) -> int:
    """Note that a test suite is about to be opened.

    Args:
        workspace: Where it is noted: ``openings.jsonl``.
        suite: The suite's fingerprint.
        what: The model, or the sweep.

    Returns:
        How often this suite was opened before.
    """
    path = workspace.root / "openings.jsonl"
    before = 0
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        before = sum(json.loads(line)["suite"] == suite for line in lines)
    entry = {"suite": suite, "what": what, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    return before
