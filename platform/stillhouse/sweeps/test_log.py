"""The record of every opening of a locked test suite."""

import json
import time
from pathlib import Path

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import warn
from stillhouse.plan.stage import Stage


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


def tell_runs(workspace: Workspace, suite: str, model: str) -> int:
    """Note an opening in the runs of MLflow that made the model: a stage's runs, or the sweep's of an export.

    Args:
        workspace: Where the model may be from.
        suite: The suite's fingerprint.
        model: As a person named it.

    Returns:
        How many runs were told: none of a model from elsewhere, or where MLflow does not answer.
    """
    from stillhouse.tracking.mlflow_tracker import sqlite_path, tracking_uri
    from stillhouse.tracking.reading import tag_runs

    folder, uri = Path(model).resolve(), tracking_uri(workspace.root)
    root, path = workspace.root.resolve(), sqlite_path(uri)
    stages = root / Stage.kind
    if folder.parent == root / "sweeps" / folder.parent.name and folder.name == "export":
        wanted = f"tags.`stillhouse.sweep` = '{folder.parent.name}'"
    elif stages in folder.parents or (stages / model).is_dir():
        wanted = f"params.fingerprint = '{folder.name.rpartition('-')[2]}'"
    else:
        return 0
    if path is not None and not path.exists():
        return 0
    told = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} by evaluate"
    try:
        return tag_runs(uri, wanted, {f"stillhouse.opened.{suite}": told})
    # A server that is down stops no evaluation: the workspace has the record.
    except Exception as error:
        warn(f"the opening is in {root / 'openings.jsonl'}, but MLflow was not told: {type(error).__name__}")
        return 0
