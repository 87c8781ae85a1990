"""A trial whose process Ray's memory monitor kills: tried twice, and no larger batch after it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from stillhouse.search.searcher import ExplainErrors, StudySearcher
from stillhouse.search.space import Categorical, Space

GB = 1_000_000_000


def trainable(config: dict[str, Any]) -> None:
    """Fill the memory with a batch of 64 or more."""
    from ray import tune

    batch = config["hyper_parameters"]["batch_size"]
    with Path(config["tries"]).open("a") as file:
        file.write(f"{batch}\n")
    held: list[bytearray] = []
    while batch >= 64 and len(held) < 80:
        held.append(bytearray(os.urandom(1000)) * (GB // 10_000))
        time.sleep(0.05)
    tune.report({"q": 1.0, "examples_seen": 8, "metrics": {"q": 1.0}, "seconds": 1.0, "finished": True})


def main(folder: Path) -> None:
    """Search three batches; the first point is one that does not fit."""
    import ray
    from ray import tune
    from ray._common.utils import get_system_memory
    from ray._private.utils import get_used_memory
    from ray.air.execution._internal.actor_manager import RayActorManager

    from stillhouse.search import tuner

    os.environ["RAY_memory_usage_threshold"] = str((get_used_memory() + 2 * GB) / get_system_memory())
    os.environ["RAY_memory_monitor_refresh_ms"] = "50"
    space = Space("m", {"batch_size": Categorical((32, 64, 128))}, first={"batch_size": 64})
    search = StudySearcher(
        folder / "study.db", space, sampler="grid", trials=3, objective="q", full_budget=8, slots=lambda: 1
    )
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder))
    RayActorManager._actor_task_failed = tuner._task_failed
    run = tune.RunConfig(
        storage_path=str(folder / "tune"),
        verbose=0,
        failure_config=tune.FailureConfig(max_failures=3),
        callbacks=[ExplainErrors(search)],
    )
    config = tune.TuneConfig(search_alg=search, num_samples=3, reuse_actors=True)
    tune.Tuner(
        trainable, param_space={"tries": str(folder / "tries")}, tune_config=config, run_config=run
    ).fit()
    found = [[each.state, each.hyper_parameters["batch_size"], each.reason] for each in search.records()]
    (folder / "records.json").write_text(json.dumps(found))


@pytest.mark.ray
@pytest.mark.long
def test_a_point_whose_process_is_killed_for_memory_is_tried_twice() -> None:
    folder = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    ran = subprocess.run(
        [sys.executable, __file__, folder], capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (folder / "tries").read_text().split() == ["64", "64", "32"]
    found = json.loads((folder / "records.json").read_text())
    assert found == [["FAIL", 64, "out of memory with batch_size=64"], ["COMPLETE", 32, None]]
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
