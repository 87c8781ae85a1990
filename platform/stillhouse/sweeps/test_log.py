"""The test log: every use of a locked test suite is recorded."""

import json
import time
from pathlib import Path

from stillhouse.core.artifacts import Workspace, lock_of_file, locked
from stillhouse.core.console import warn
from stillhouse.core.json_text import parse_json
from stillhouse.core.notes import SWEEP_NOTE, SWEEPS
from stillhouse.core.redaction import redacted_json
from stillhouse.tracking.location import sqlite_path, tracking_uri
from stillhouse.tracking.reading import tag_runs
from stillhouse.values.stage import Stage

TEST_LOG = "openings.jsonl"
"""The file of the workspace with one line per use."""


def record_test_use(workspace: Workspace, suite: str, what: str) -> int:
    """Record that the test suite of a fingerprint is about to be used; return how often it was before.

    ``what`` is the model or the sweep that is tested.
    """
    path = workspace.root / TEST_LOG
    with locked(lock_of_file(path)):
        log = path.read_bytes() if path.exists() else b""
        suites = [suite_in(line) for line in log.splitlines()]
        if None in suites:
            warn(f"{suites.count(None)} damaged lines of {path} count as uses of this suite.")
        entry = {"suite": suite, "what": what, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        # A kill or a full disk may have cut the last line.
        start = "" if log.endswith(b"\n") or not log else "\n"
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{start}{json.dumps(redacted_json(entry))}\n")
    return sum(known in (suite, None) for known in suites)


def suite_in(line: bytes) -> str | None:
    """The suite that a line of the log names; None if the line is damaged."""
    try:
        return str(parse_json(line)["suite"])
    except (ValueError, KeyError, TypeError):
        return None


def tag_tested_runs(workspace: Workspace, suite: str, model: str) -> int:
    """Tag the MLflow runs that made a model with a use of a test suite.

    The model is its name or folder, as the user gave it. For a stage, the runs of the stage are tagged; for a
    sweep or its export, the run of the sweep.

    Returns:
        Number of tagged runs: 0 for a model from elsewhere, or if MLflow does not answer.
    """
    folder, uri = Path(model).resolve(), tracking_uri(workspace.root)
    root, path = workspace.root.resolve(), sqlite_path(uri)
    stages, sweeps = root / Stage.kind, root / SWEEPS
    exported = folder.parent.parent == sweeps and folder.name == "export"
    if exported or folder.parent == sweeps or (sweeps / model / SWEEP_NOTE).is_file():
        query = f"tags.`stillhouse.sweep` = '{folder.parent.name if exported else folder.name}'"
    elif stages in folder.parents or (stages / model).is_dir():
        query = f"params.fingerprint = '{folder.name.rpartition('-')[2]}'"
    else:
        return 0
    if path is not None and not path.exists():
        return 0
    use = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} by evaluate"
    try:
        return tag_runs(uri, query, {f"stillhouse.opened.{suite}": use})
    # A server that is down must not stop an evaluation: the workspace has the record.
    except Exception as error:
        warn(f"the test is recorded in {root / TEST_LOG}, but not in MLflow: {type(error).__name__}")
        return 0
