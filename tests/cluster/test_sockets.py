"""What a run on this machine listens on: loopback alone, with Ray and without."""

import ipaddress
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stillhouse.core.machine import ranks_on_loopback

ROOT = Path(__file__).resolve().parents[2]
NOUNS = ("cat", "dog", "river", "house", "list", "water", "sun", "moon")


def listening(process: psutil.Process) -> Iterator[tuple[str, str]]:
    """Yield the address and the name of every listening socket of a process and of what it has started."""
    for each in (process, *process.children(recursive=True)):
        try:
            name = " ".join(each.cmdline())
            connections = each.net_connections(kind="inet")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                yield str(connection.laddr.ip), name


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine alone, also written as an IPv6 address."""
    ip = ipaddress.ip_address(address)
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


@pytest.mark.ray
@pytest.mark.parametrize("flags", [[], ["--local"]], ids=["ray", "local"])
def test_a_run_on_this_machine_listens_on_loopback_alone(
    flags: list[str], tmp_path: Path, tiny_model: Path, ray_folder: str
) -> None:
    """Training on two workers starts most: node, dashboard, agents, workers and their ranks."""
    (tmp_path / "texts.txt").write_text("".join(f"the {a} and the {b}\n" for a in NOUNS for b in NOUNS))
    small = ["--set", "sentences.held_out=4", "--set", "batch_size=4", "--distil-budget", "400"]
    command = ["train", "mse", "--workers", "2", "--teacher", str(tiny_model), "--corpus", "texts.txt"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "RAY_TMPDIR": ray_folder}
    environment.pop("RAY_ADDRESS", None)
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "stillhouse.cli.main",
            *command,
            *small,
            "--root",
            str(tmp_path / "runs"),
            *flags,
        ],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found: set[tuple[str, str]] = set()
    process = psutil.Process(run.pid)
    while run.poll() is None:
        found |= set(listening(process))
        time.sleep(0.1)
    output = run.communicate()[0]
    assert run.returncode == 0, output
    assert [pair for pair in found if not is_loopback(pair[0])] == []
    parts = ("gcs_server", "raylet", "DashboardAgent", "RuntimeEnvAgent", "TrainWorker")
    for part in () if flags else parts:
        assert any(part in name for _, name in found), f"{part} was not seen: {found}"
    if flags and ranks_on_loopback():
        assert found, "the ranks' own sockets were seen"


def test_addresses_are_told_apart() -> None:
    assert [is_loopback(a) for a in ("127.0.0.1", "::1", "::ffff:127.0.0.1")] == [True] * 3
    assert [is_loopback(a) for a in ("0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1")] == [False] * 4
