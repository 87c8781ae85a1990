"""A real Tuner over the searcher and the scheduler. As a script, this file is the driver that gets killed."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
TRIALS, FULL = 8, 400
LEVELS = {0: 0.5, 1: 0.3, 2: 0.8, 3: 0.8, 4: 0.9, 5: 0.1, 6: 0.8, 7: 0.2}


def trainable(config: dict[str, Any]) -> None:
    """Evaluate at each quarter of the budget; the trial's number decides how it ends."""
    from ray import tune

    number, marker = config["trial"], Path(config["folder"]) / "killed"
    if number == 4:
        tune.report({"examples_seen": 50, "finished": False})
    for examples in (100, 200, 300, 400):
        if number == 3 and examples == 200:
            raise ValueError("no such layer")
        if number == 6 and examples == 200:
            tune.report({"q": math.nan, "examples_seen": 0, "reason": "the loss is NaN", "finished": False})
            return
        tune.report({"q": LEVELS[number] + examples / 1e4, "examples_seen": examples, "finished": False})
        if number == 4 and examples == 200 and not marker.exists():
            marker.touch()
            os.kill(config["driver"], signal.SIGKILL)
            time.sleep(60)
    last = math.nan if number == 2 else LEVELS[number]
    report = {"q": last, "examples_seen": FULL, "metrics": {"q": last}, "seconds": 1.0}
    tune.report({**report, "finished": True})


def main(folder: Path, ray_folder: str) -> None:
    """Start the sweep once."""
    import ray
    from ray import tune

    from stillhouse.search.scheduler import StudyScheduler
    from stillhouse.search.schedulers import load_scheduler
    from stillhouse.search.searcher import ExplainErrors, StudySearcher
    from stillhouse.search.space import Float, Space

    space = Space("m", {"x": Float(0.0, 1.0)}, first={"x": 0.5})
    search = StudySearcher(
        folder / "study.db", space, trials=TRIALS, objective="q", full_budget=FULL, slots=lambda: 1
    )
    rule = load_scheduler("asha").rule(FULL)
    assert rule is not None
    scheduler = StudyScheduler(rule, "q", full_budget=FULL, at_least_full=2, history=search.records())
    ray.init(
        address="local",
        num_cpus=1,
        object_store_memory=80_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=ray_folder,
    )
    tuner = tune.Tuner(
        trainable,
        param_space={"driver": os.getpid(), "folder": str(folder)},
        tune_config=tune.TuneConfig(
            search_alg=search,
            scheduler=scheduler,
            num_samples=TRIALS,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="tune", storage_path=str(folder), verbose=0, callbacks=[ExplainErrors(search)]
        ),
    )
    tuner.fit()
    ray.shutdown()
    records = [[r.number, r.state, r.values, r.reason, list(r.curve)] for r in search.records()]
    (folder / "records.json").write_text(json.dumps(records))


@pytest.fixture
def ray_folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="st-", dir="/tmp")
    yield folder
    leftovers = [p for p in psutil.process_iter(["cmdline"]) if folder in " ".join(p.info["cmdline"] or [])]
    for process in leftovers:
        process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path, ray_folder: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "platform"),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, __file__, str(folder), ray_folder]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.ray
@pytest.mark.long
def test_a_killed_sweep_ends_with_every_trial_in_its_true_state(tmp_path: Path, ray_folder: str) -> None:
    killed = start(tmp_path, ray_folder)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    resumed = start(tmp_path, ray_folder)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    records = {number: rest for number, *rest in json.loads((tmp_path / "records.json").read_text())}
    assert {number: state for number, (state, *_) in records.items()} == {
        0: "COMPLETE",
        1: "COMPLETE",
        2: "FAIL",
        3: "FAIL",
        4: "COMPLETE",
        5: "PRUNED",
        6: "FAIL",
        7: "PRUNED",
    }
    assert [records[number][1] for number in (0, 1, 4)] == [[0.5], [0.3], [0.9]]
    assert records[5][1] == [pytest.approx(0.11)] and records[5][3] == [100]
    assert "q=nan" in records[2][2]
    assert records[3][2] == "ValueError: no such layer"
    assert records[6][2] == "the loss is NaN"
    assert records[4][3] == [100, 200, 300, 400]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
