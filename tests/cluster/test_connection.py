"""How many trials fit on a cluster, and which never will."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stillhouse.cluster import connection as cluster
from stillhouse.cluster import resources as room
from stillhouse.cluster.resources import Need, Nodes, concurrency, launched
from stillhouse.core.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
TWO_CPUS: Nodes = [({"CPU": 2.0}, 1)]
HEAD: Nodes = [({"CPU": 0.0}, 1)]
SPOT: Nodes = [({"CPU": 0.0}, 1), ({"CPU": 16.0, "GPU": 1.0}, 8), ({"CPU": 16.0}, 4)]


@pytest.mark.parametrize(
    ("up", "grown", "need", "fit"),
    [
        (TWO_CPUS, [], Need(), 2),
        (TWO_CPUS, [], Need(cpus=0.5), 4),
        (TWO_CPUS, [], Need(workers=2), 1),
        ([({"CPU": 2.0}, 3)], [], Need(workers=2, cpus=2), 1),
        (HEAD, SPOT, Need(gpus=1), 8),
        (HEAD, SPOT, Need(workers=2, cpus=8, gpus=1), 4),
        (HEAD, SPOT, Need(cpus=8), 24),
        (HEAD, [({"CPU": 4.0}, math.inf)], Need(), 10_000),
    ],
)
def test_as_many_as_fit(
    monkeypatch: pytest.MonkeyPatch, up: Nodes, grown: Nodes, need: Need, fit: int
) -> None:
    monkeypatch.setattr(room, "nodes_up", lambda: up)
    monkeypatch.setattr(room, "nodes_to_come", lambda: grown)
    assert concurrency(need, 0) == fit
    assert concurrency(need, 1) == 1


@pytest.mark.parametrize(
    ("up", "grown", "need"),
    [
        (TWO_CPUS, [], Need(workers=3)),
        (TWO_CPUS, [], Need(gpus=1)),
        (HEAD, [], Need()),
        ([({"CPU": 2.0}, 8)], [], Need(cpus=4)),
        (HEAD, [({"CPU": 16.0}, 4), ({"GPU": 1.0}, 4)], Need(gpus=1)),
    ],
)
def test_what_never_fits_is_refused(
    monkeypatch: pytest.MonkeyPatch, up: Nodes, grown: Nodes, need: Need
) -> None:
    """The CPUs of all nodes together are enough in the last two; no node has what one worker takes."""
    monkeypatch.setattr(room, "nodes_up", lambda: up)
    monkeypatch.setattr(room, "nodes_to_come", lambda: grown)
    with pytest.raises(BadInput, match="the workers of a trial must fit on the cluster"):
        concurrency(need, 1)


def test_the_launched_cluster_grows_as_its_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray 2.60 asks nobody how far its own autoscaler grows; the launcher leaves its file on the head."""
    grown = launched(ROOT / "cluster.yaml")
    assert ({"CPU": 0.0}, 1.0) in grown and ({"CPU": 16.0, "GPU": 1.0}, 8.0) in grown
    monkeypatch.setattr(room, "nodes_up", lambda: HEAD)
    monkeypatch.setattr(room, "nodes_to_come", lambda: grown)
    assert concurrency(Need(workers=4, cpus=4, gpus=1), 0) == 3
    assert room.teacher_actors("cuda") == 12


def test_kubernetes_does_not_tell_and_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "nodes_up", lambda: HEAD)
    monkeypatch.setattr(room, "nodes_to_come", list)
    monkeypatch.setenv("RAY_USAGE_STATS_KUBERAY_IN_USE", "1")
    assert concurrency(Need(gpus=1), 4) == 4
    with pytest.raises(BadInput, match="must fit on the cluster"):
        concurrency(Need(gpus=1), 0)


@pytest.mark.parametrize("changes", [{"workers": 0}, {"cpus": 0}, {"workers": 2, "cpus": 0.5}])
def test_needs_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Need(**changes)


def test_a_trial_with_workers_of_its_own_takes_no_cpu_from_them() -> None:
    assert "CPU" not in Need(workers=2).trial and Need(workers=2).options["num_cpus"] == 0
    assert Need(cpus=2.0).trial["CPU"] == Need(cpus=2.0).options["num_cpus"] == 2


def test_workers_get_the_package_and_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses a variable that the job gave too."""
    for name in cluster._FOR_WORKERS:
        monkeypatch.setenv(name, "10")
    job = {"runtime_env": {"env_vars": {"DO_NOT_TRACK": "no"}, "working_dir": "gcs://a.zip"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    environment = cluster._workers_environment()
    assert "DO_NOT_TRACK" not in environment["env_vars"]
    assert environment["env_vars"]["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert (Path(environment["py_modules"][0]) / "cli/main.py").exists()
