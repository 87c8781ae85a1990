"""The task file for SkyPilot, by its own parser, and what its script does on each node.

SkyPilot wants older versions of click and uvicorn than the platform: it is in an environment of its own,
which `make cluster-test` makes. The script runs with stand-ins for `ray` and for the job.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from launchers import CLUSTERS, FILL_IN, ROOT  # type: ignore[import-not-found]

from stillhouse.cli.main import parser

FILE = CLUSTERS / "sky.yaml"
TEXT = FILE.read_text()
TASK: dict[str, Any] = yaml.safe_load(TEXT)
SKY = ROOT / ".venv-sky" / "bin" / "python"
HEAD = "10.0.0.1"
SKYPILOTS_PORTS = {"6380", "8266", "8076", "10001", "52365"}
"""Of its own Ray, in the same container; the last two are Ray's defaults."""

READ = """
import json, sys
import sky
from sky.skylet import constants

task = sky.Task.from_yaml(sys.argv[1])
print(json.dumps({
    "version": sky.__version__,
    "ports": [constants.SKY_REMOTE_RAY_PORT, constants.SKY_REMOTE_RAY_DASHBOARD_PORT],
    "nodes": task.num_nodes,
    "run": task.run,
    "setup": task.setup,
    "envs": task.envs,
    "given": sorted(task.secrets),
    "asked": sorted(secret.name for secret in task.managed_secret_refs),
    "machines": [
        {
            "infra": [str(each.cloud), each.region],
            "image": each.extract_docker_image(),
            "gpus": each.accelerators,
            "spot": each.use_spot,
            "disk": each.disk_size,
            "stops": [getattr(each.autostop_config, name) for name in ("enabled", "idle_minutes", "down")],
            "options": each.cluster_config_overrides["docker"]["run_options"],
        }
        for each in task.resources
    ],
}))
"""

RAY = '''#!{python} -ES
"""A stand-in for `ray`: an address answers as long as its file is there."""
import os, pathlib, signal, sys, time

state, (command, *words) = pathlib.Path(os.environ["STATE"]), sys.argv[1:]
with (state / f"ray-{os.environ['SKYPILOT_NODE_RANK']}.log").open("a") as log:
    log.write("\\t".join([command, *words]) + "\\n")
flags = dict(word.partition("=")[::2] for word in words)
if command == "health-check":
    sys.exit(not (state / words[words.index("--address") + 1]).exists())
if command != "start" or "OMP_NUM_THREADS" in os.environ:
    sys.exit(2)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if "--head" in flags:
    if "refuses" in os.environ:
        sys.exit(1)
    mine = state / f"{flags['--node-ip-address']}:{flags['--port']}"
    mine.touch()
    try:
        time.sleep(60)
    finally:
        mine.unlink()
joined = state / flags["--address"]
if not joined.exists():
    sys.exit(1)
(state / f"joined-{os.environ['SKYPILOT_NODE_RANK']}").touch()
while joined.exists():
    time.sleep(0.02)
sys.exit(1)
'''

PYTHON = """#!/bin/bash
if [ "$1" = - ]; then
    PYTHONPATH=$STATE/modules exec {python} "$@"
fi
printf '%s\\t' "$RAY_ADDRESS" "$(ls -d "$STATE"/joined-* 2> /dev/null | wc -l)" "$@" > "$STATE/job"
exit "$CODE"
"""

MODULE = """
import os, pathlib, time

time.sleep = (lambda sleep: lambda _: sleep(0.02))(time.sleep)
state = pathlib.Path(os.environ["STATE"])


def init(**how):
    assert (state / os.environ["RAY_ADDRESS"]).exists(), "no such cluster"


def nodes():
    return [{"Alive": False}, {"Alive": True}, *({"Alive": True} for _ in state.glob("joined-*"))]
"""


@dataclass
class Outcome:
    """What a run on several nodes came to.

    Attributes:
        codes: Exit code of each node.
        said: What the nodes have written.
        job: What the job has seen of the cluster, and its command; None if it was not run.
        ray: The calls of `ray` on each node.
    """

    codes: list[int]
    said: str
    job: list[str] | None
    ray: list[list[list[str]]]

    def started(self, rank: int) -> list[str]:
        """The words of the one `ray start` of a node."""
        (words,) = (words for command, *words in self.ray[rank] if command == "start")
        return words


def launched(
    folder: Path, ranks: list[int], code: int = 0, head: int = 30, nodes: int = 30, **more: str
) -> Outcome:
    """Run the script on some of three nodes; ``head`` and ``nodes`` are awaited for so many seconds."""
    (folder / "bin").mkdir()
    (folder / "modules").mkdir()
    (folder / "modules" / "ray.py").write_text(MODULE)
    pause = "#!/bin/sh\nexec /bin/sleep 0.05\n"
    for name, text in (("ray", RAY), ("python", PYTHON), ("sleep", pause)):
        (folder / "bin" / name).write_text(text.replace("{python}", sys.executable))
        (folder / "bin" / name).chmod(0o755)
    addresses = "\n".join([HEAD, "10.0.0.2", "10.0.0.3"])
    environment = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "STATE": str(folder),
        "CODE": str(code),
        "OMP_NUM_THREADS": "1",
        "SKYPILOT_NODE_IPS": addresses,
        "SKYPILOT_NUM_NODES": "3",
        "SKYPILOT_NUM_GPUS_PER_NODE": "1",
        **TASK["envs"],
        **more,
    }
    script = folder / "run.sh"
    assert TASK["run"].count("600") == TASK["run"].count("-ge 600") + TASK["run"].count("+ 600") == 2
    script.write_text(TASK["run"].replace("-ge 600", f"-ge {head}").replace("+ 600", f"+ {nodes}"))
    begun = []
    for rank in ranks:
        with (folder / f"said-{rank}").open("w") as said:
            begun.append(
                subprocess.Popen(
                    ["bash", str(script)],
                    env={**environment, "SKYPILOT_NODE_RANK": str(rank)},
                    cwd=folder,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    try:
        codes = [node.wait(45) for node in begun]
    finally:
        for node in begun:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
    job = folder / "job"
    logs = [folder / f"ray-{rank}.log" for rank in ranks]
    return Outcome(
        codes,
        "".join((folder / f"said-{rank}").read_text() for rank in ranks),
        job.read_text().split("\t")[:-1] if job.exists() else None,
        [[line.split("\t") for line in log.read_text().splitlines()] if log.exists() else [] for log in logs],
    )


@pytest.mark.skipif(not SKY.exists(), reason="SkyPilot is not installed: make cluster-test")
def test_skypilot_reads_the_file(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    command = [str(SKY), "-I", "-c", READ, str(FILE)]
    done = subprocess.run(command, env={**os.environ, **home}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    assert read["run"] == TASK["run"] and read["setup"] is None
    assert read["envs"] == TASK["envs"] and read["nodes"] == TASK["num_nodes"] > 1
    assert read["given"] == [] and read["asked"] == sorted(TASK["secrets"])
    assert {str(port) for port in read["ports"]} < SKYPILOTS_PORTS
    kinds = {(gpu, machine["spot"]) for machine in read["machines"] for gpu in machine["gpus"]}
    assert kinds == {(gpu, spot) for gpu in TASK["resources"]["accelerators"] for spot in (True, False)}
    for machine in read["machines"]:
        assert machine["infra"] == ["AWS", "us-west-2"] and machine["image"] == "REGISTRY/stillhouse:cuda"
        assert machine["stops"] == [True, 10, True], "nothing stays running"
        assert machine["disk"] > float(read["envs"]["STILLHOUSE_CACHE_GB"]), "the cache has room"
        assert machine["options"] == ["--shm-size=8g", "--ulimit nofile=65536:65536"]


def test_the_file_holds_no_secret_and_what_the_nodes_share() -> None:
    assert TASK["secrets"] and not any(TASK["secrets"].values())
    assert {"RAY_AUTH_TOKEN", "MLFLOW_TRACKING_URI"} <= set(TASK["secrets"])
    assert TASK["envs"]["RAY_AUTH_MODE"] == "token"
    assert TASK["envs"]["STILLHOUSE_REMOTE"].startswith(f"s3://bucket-{FILL_IN}/")
    commands = [line.partition("#")[0] for line in TEXT.splitlines()]
    assert not any("ray stop" in line or "kill -9" in line or "pkill" in line for line in commands)


def test_the_script_is_valid_and_its_commands_take_their_flags(tmp_path: Path) -> None:
    from ray.scripts.scripts import cli

    done = subprocess.run(["bash", "-n"], input=TASK["run"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    outcome = launched(tmp_path, [0, 1, 2])
    assert outcome.job is not None
    _, _, path, *flags = outcome.job
    assert path == "/opt/stillhouse/jobs/sweep_ibkd.py" and (ROOT / "jobs" / "sweep_ibkd.py").exists()
    given = parser().parse_args(["sweep", "ibkd", *flags])
    assert (given.address, given.device) == ("auto", "cuda")
    for command, *words in (line for log in outcome.ray for line in log):
        cli.commands[command].make_context(command, words)


@pytest.mark.parametrize("code", [0, 3])
def test_workers_join_the_head_and_the_jobs_exit_code_is_the_heads(tmp_path: Path, code: int) -> None:
    outcome = launched(tmp_path, [0, 1, 2], code)
    assert outcome.codes == [code, 0, 0], outcome.said
    assert outcome.job is not None
    address, joined, *_ = outcome.job
    assert joined == "2", "the job has waited for both workers"
    head, *workers = (outcome.started(rank) for rank in range(3))
    port = address.removeprefix(f"{HEAD}:")
    assert {"--head", "--block", f"--node-ip-address={HEAD}", f"--port={port}", "--num-gpus=1"} <= set(head)
    for words in workers:
        assert {"--block", f"--address={address}", "--num-gpus=1"} <= set(words) and "--head" not in words
    assert not (tmp_path / address).exists(), "the head's Ray has ended with the job"


def test_no_port_is_that_of_skypilots_own_ray(tmp_path: Path) -> None:
    outcome = launched(tmp_path, [0, 1, 2])
    for rank in range(3):
        ports = dict(word.partition("=")[::2] for word in outcome.started(rank) if "port=" in word)
        assert not SKYPILOTS_PORTS & set(ports.values()) and len(set(ports.values())) == len(ports)
        assert "--dashboard-agent-listen-port" in ports
        assert rank or {"--port", "--dashboard-port", "--ray-client-server-port"} < set(ports)


def test_a_node_that_does_not_join_fails_the_job(tmp_path: Path) -> None:
    outcome = launched(tmp_path, [0, 1], nodes=2)
    assert outcome.codes == [1, 0] and outcome.job is None
    assert "Only 2 of 3 nodes have joined." in outcome.said
    assert not list(tmp_path.glob(f"{HEAD}:*")), "its Ray has ended"


def test_a_worker_without_a_head_gives_up(tmp_path: Path) -> None:
    outcome = launched(tmp_path, [1], head=1)
    assert outcome.codes == [1] and f"No Ray answers at {HEAD}:" in outcome.said


def test_a_head_whose_ray_does_not_start_fails_at_once(tmp_path: Path) -> None:
    begun = time.monotonic()
    outcome = launched(tmp_path, [0], head=40, refuses="yes")
    assert outcome.codes == [1] and outcome.job is None
    assert time.monotonic() - begun < 30
