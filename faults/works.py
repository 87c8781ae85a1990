"""Work without a command of its own: a search over a study, and the recording of runs."""

import contextlib
import math
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from services import TRACKING_TIMEOUT

TRIALS, STEPS_PER_RUN = 6, 15
_EXPERIMENT = "faults"
_SWEEP = ("s1",)


def search_a_study(root: Path) -> int:
    """Drive a search to its end, one trial at a time; every third trial is stopped early, one diverges."""
    from stillhouse.core.artifacts import remove_leftovers

    remove_leftovers(root)  # As every start of a sweep does.
    search = _searcher(root)
    for turn in range(10 * TRIALS):
        config = search.suggest(f"tune{turn}")
        if isinstance(config, str):
            return 0 if config == "FINISHED" else 1
        rate, number = config["hyper_parameters"]["rate"], config["trial"]
        quality = -abs(math.log(rate) + 8)
        early = {"q": quality - 1, "examples_seen": 50, "finished": False}
        search.on_trial_result(f"tune{turn}", early)
        if number % 3 == 2:
            search.on_trial_complete(f"tune{turn}", early)
            continue
        value = math.nan if number == 4 else quality
        search.on_trial_complete(f"tune{turn}", {"q": value, "examples_seen": 100, "finished": True})
    return 1


def study_of(root: Path) -> dict[str, Any]:
    """The signature of a study: its trials in order, and whether any is left running."""
    if not (root / "study.db").exists():
        return {}
    records = _searcher(root).records()
    return {
        f"trial {at}": (record.state, repr(record.values), dict(record.curve), dict(record.hyper_parameters))
        for at, record in enumerate(records)
    }


def _searcher(root: Path) -> Any:
    from stillhouse.search.searcher import StudySearcher
    from stillhouse.search.space import Categorical, Float, Space

    ranges: dict[str, Categorical | Float] = {
        "rate": Float(1e-5, 1e-2, True),
        "layers": Categorical(((0, 1), (0, 2), (1,))),
    }
    space = Space("m", ranges, first={"rate": 1e-4, "layers": (0, 2)})
    root.mkdir(parents=True, exist_ok=True)
    return StudySearcher(root / "study.db", space, trials=TRIALS, objective="q", full_budget=100, seed=3)


def copy_database(empty: Path, root: Path) -> Path:
    """Let a workspace have a database with MLflow's tables, whose making takes seconds; return its path."""
    database = root / "mlflow.db"
    if not database.exists():
        root.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(empty, root / ".mlflow.db.copy")
        (root / ".mlflow.db.copy").rename(database)
    return database


def record_runs(root: Path, empty: Path, uri: str = "") -> int:
    """Record a sweep's runs in the workspace's SQLite database, as the driver of a sweep does.

    Args:
        root: The workspace.
        empty: A database with MLflow's tables, whose making takes seconds.
        uri: The server that they are sent to instead.
    """
    from stillhouse.tracking import Row
    from stillhouse.tracking.mlflow_tracker import MLflowTracker

    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = f"{TRACKING_TIMEOUT:g}"
    uri = uri or f"sqlite:///{copy_database(empty, root)}"
    tracker = MLflowTracker(uri, _EXPERIMENT, root / "sweeps" / "s1")
    tracker.run(_SWEEP, "sweep")
    for number in range(TRIALS):
        key = (*_SWEEP, f"t{number}")
        tracker.run(key, f"trial {number}", {"number": number})
        rows = [Row(step, 1e9 + step, {"loss": number + step / 100}) for step in range(STEPS_PER_RUN)]
        tracker.metrics(key, rows)
        tracker.finish(key)
    tracker.finish(_SWEEP)
    return 2 if tracker.close() else 0


def runs_of(root: Path) -> dict[str, Any]:
    """The signature of a database: every run with its state, parameters and metrics."""
    path = root / "mlflow.db"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        runs = database.execute("""select run_uuid, name, status from runs
            where lifecycle_stage = 'active' order by name, run_uuid""").fetchall()
        found: dict[str, Any] = {}
        for at, (run, name, status) in enumerate(runs):
            values = database.execute(
                "select key, step, value, timestamp from metrics where run_uuid = ? order by 1, 2, 3", (run,)
            ).fetchall()
            parameters = database.execute(
                "select key, value from params where run_uuid = ?", (run,)
            ).fetchall()
            found[f"run {at}"] = (name, status, values, parameters)
        return found


def prepare_database(path: Path) -> Path:
    """Write a database with MLflow's tables."""
    from stillhouse.tracking.location import prepare

    prepare(f"sqlite:///{path}")
    return path
