"""Joining a Ray cluster, or starting a local one, and what a trial asks of it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import TaskUnschedulableError, WorkerCrashedError
from rows import each_row

import stillhouse
from stillhouse.cluster import connection as cluster
from stillhouse.cluster.membership import nodes_alive
from stillhouse.cluster.resources import Need
from stillhouse.core.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]


@each_row("changes", [{"workers": 0}, {"cpus": 0}, {"workers": 2, "cpus": 0.5}, {"gpus": 1.5}])
def test_impossible_resource_requests_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Need(**changes)


def test_a_trial_with_its_own_workers_reserves_no_extra_cpu() -> None:
    assert "CPU" not in Need(workers=2).trial and Need(workers=2).options["num_cpus"] == 0
    assert Need(cpus=2.0).trial["CPU"] == Need(cpus=2.0).options["num_cpus"] == 2


def test_workers_receive_the_package_and_our_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses a variable that the job has set as well."""
    for name in cluster._FOR_WORKERS:
        monkeypatch.setenv(name, "10")
    job = {"runtime_env": {"env_vars": {"DO_NOT_TRACK": "no"}, "working_dir": "gcs://a.zip"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    environment = cluster._workers_environment()
    assert "DO_NOT_TRACK" not in environment["env_vars"]
    assert environment["env_vars"]["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert (Path(environment["py_modules"][0]) / "cli/main.py").exists()


def test_the_modules_of_a_job_take_precedence_over_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses a job and a driver that both name some."""
    job = {"runtime_env": {"py_modules": ["theirs"], "env_vars": {"DO_NOT_TRACK": "1"}}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    for name in cluster._FOR_WORKERS:
        monkeypatch.setenv(name, "1")
    environment = cluster._workers_environment()
    assert "py_modules" not in environment and "DO_NOT_TRACK" not in environment["env_vars"]


def test_a_busy_machine_gets_another_attempt_also_without_ps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([Exception("The current node timed out during startup. This could happen"), None])

    def start() -> None:
        outcome = next(outcomes)
        if outcome is not None:
            for name in ("ray::raylet", "sleep"):
                started.append(subprocess.Popen([name, "60"], executable=sleep))
            raise outcome

    started: list[subprocess.Popen[bytes]] = []
    sleep = shutil.which("sleep")
    monkeypatch.setenv("PATH", "/nowhere")
    cluster._start_local(start)
    assert "the machine is busy" in capsys.readouterr().err
    assert started[0].wait(10) == -signal.SIGKILL, "what Ray started has ended"
    assert started[1].poll() is None, "what others started has not"
    started[1].kill()


def test_a_machine_that_stays_busy_is_named_and_other_errors_are_not_retried() -> None:
    def slow() -> None:
        raise RuntimeError("The current node timed out during startup.")

    def broken() -> None:
        calls.append(1)
        raise ConnectionError("refused")

    calls: list[int] = []
    with pytest.raises(BadInput, match=r"in 2 attempts: the machine is busy.*--local"):
        cluster._start_local(slow, attempts=2)
    with pytest.raises(ConnectionError):
        cluster._start_local(broken)
    assert len(calls) == 1


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is held without listening, so that connections to it are refused."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_an_address_where_nothing_listens_is_refused_within_its_limit(
    free_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was asked, which waits for two minutes"))
    begun = time.monotonic()
    where = f"127.0.0.1:{free_port}"
    with pytest.raises(BadInput, match=rf"must answer at {where}, but: .*refused.* Start one: `ray start"):
        cluster.connect(where, nested=False, verbose=False)
    assert time.monotonic() - begun < 10
    assert f"waiting up to 0 s for the Ray cluster at {where}" in capsys.readouterr().err


@pytest.mark.parametrize("listens", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_command_that_waits_for_a_cluster_heeds_sigterm(listens: bool, tmp_path: Path) -> None:
    """Where nothing listens, and where something accepts connections and says nothing."""
    (tmp_path / "c.txt").write_text("one text\nanother text\n")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        if listens:
            held.listen()
        where = f"127.0.0.1:{held.getsockname()[1]}"
        words = ["embed", "--corpus", str(tmp_path / "c.txt"), "--root", str(tmp_path / "runs")]
        code = (
            "import sys; from stillhouse.cli.main import main; from stillhouse.cluster import probe; "
            "probe._LONGEST_CALL = 0.5; sys.exit(main(sys.argv[1:]))"
        )
        command = [sys.executable, "-c", code, *words, "--address", where]
        environment = {**os.environ, "PYTHONPATH": str(Path(stillhouse.__file__).parents[1])}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as waiting:
            assert waiting.stdout is not None
            first = waiting.stdout.readline()
            begun = time.monotonic()
            waiting.send_signal(signal.SIGTERM)
            rest = waiting.stdout.read()
        assert first == f"waiting up to 15 s for the Ray cluster at {where}\n"
        assert "interrupted. The same command resumes from here." in rest
        assert waiting.returncode == 130 and time.monotonic() - begun < 10


def test_the_address_of_a_dashboard_is_one_for_jobs() -> None:
    with pytest.raises(BadInput, match="ray job submit --address http://head:8265"):
        cluster.connect("http://head:8265", nested=False, verbose=False)


@each_row("where", ["head", "head:port", "10.0.0.1", "10.0.0.1:99999", "ray://"])
def test_an_address_without_host_or_port_is_refused(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was asked"))
    with pytest.raises(BadInput, match=r"must be host:port or auto, but is"):
        cluster.connect(where, nested=False, verbose=False)


class OnNode:
    """A remote function that is called here; on some nodes it finds nothing, on some no lock, or it fails."""

    def __init__(self, *, blind: str = "", unlocked: str = "", failing: Exception | None = None) -> None:
        self.blind, self.unlocked, self.failing = blind, unlocked, failing

    def __call__(self, function: Any) -> "OnNode":
        self.function = function
        return self

    def options(self, *, num_cpus: float, scheduling_strategy: Any) -> "OnNode":
        assert num_cpus == 0 and not scheduling_strategy.soft
        self.node = scheduling_strategy.node_id
        return self

    def remote(self, path: str) -> Any:
        if self.failing and self.node == "b" * 56:
            raise self.failing
        found, is_locked = self.function(path if self.node != self.blind else f"{path}-elsewhere")
        return found, is_locked and self.node != self.unlocked


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Ray tells of the nodes of a cluster, of which `OnNode` answers for each."""
    ids = {"a" * 56: ("head", "10.0.0.4"), "b" * 56: ("gpu-1", "10.0.0.7")}
    nodes = [
        {
            "Alive": True,
            "NodeID": node,
            "NodeManagerHostname": host,
            "NodeManagerAddress": address,
            "Resources": {"CPU": 4.0},
        }
        for node, (host, address) in ids.items()
    ]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr("ray.get", lambda seen, timeout: seen)
    return nodes


def test_a_node_without_the_root_or_without_its_locks_is_named_by_host_and_address(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    two_nodes: list[dict[str, Any]],
) -> None:
    monkeypatch.setattr("ray.remote", OnNode())
    cluster.refuse_hidden_root(tmp_path)
    monkeypatch.setattr("ray.remote", OnNode(unlocked="b" * 56))
    with pytest.raises(BadInput, match=r"must see the locks of files.*node='gpu-1.*NFS 4"):
        cluster.refuse_hidden_root(tmp_path)
    for node in nodes_alive():
        cluster.warn_of_hidden_root(node, tmp_path)
    said = capsys.readouterr().err
    assert "node gpu-1 (10.0.0.7) does not see those in" in said and "head" not in said
    monkeypatch.setattr("ray.remote", OnNode(blind="b" * 56))
    with pytest.raises(
        BadInput, match=r"node='gpu-1 \(10\.0\.0\.7\)'\. Give a folder on a shared file system"
    ):
        cluster.refuse_hidden_root(tmp_path)
    assert not list(tmp_path.iterdir()), "the file that nodes look for is removed"
    for node in nodes_alive():
        cluster.warn_of_hidden_root(node, tmp_path)
    said = capsys.readouterr().err
    assert "node gpu-1 (10.0.0.7) does not see the workspace" in said and "head" not in said


def test_a_node_that_goes_while_it_is_asked_is_passed_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    two_nodes: list[dict[str, Any]],
) -> None:
    """Ray refuses the task of a node that has gone, or loses the task with the node."""
    going = nodes_alive()[1]
    monkeypatch.setattr("ray.remote", OnNode(failing=TaskUnschedulableError("the node is gone")))
    cluster.refuse_hidden_root(tmp_path)
    cluster.warn_of_hidden_root(going, tmp_path)
    monkeypatch.setattr("ray.remote", OnNode(failing=WorkerCrashedError()))
    with pytest.raises(WorkerCrashedError):
        cluster.warn_of_hidden_root(going, tmp_path)
    two_nodes[1]["Alive"] = False
    cluster.warn_of_hidden_root(going, tmp_path)
    assert not capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_node_may_be_asked_twice_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_nodes: list[dict[str, Any]]
) -> None:
    """By the thread that greets nodes which join, and by the start of a command."""
    together, node = threading.Barrier(2), nodes_alive()[0]

    class Slow(OnNode):
        def remote(self, path: str) -> Any:
            together.wait(30)
            seen = super().remote(path)
            together.wait(30)
            return seen

    monkeypatch.setattr("ray.remote", lambda function: Slow()(function))
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(cluster.shares, node, tmp_path) for _ in range(2)]
    assert [seen.result() for seen in asked] == [(True, True)] * 2
