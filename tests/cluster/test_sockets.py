"""What a run on this machine listens on: loopback alone, with Ray and without."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from listening import is_loopback, listening, seen_while_it_runs
from patience import STUCK_S

from stillhouse.cluster.resources import Need
from stillhouse.core.machine import ranks_on_loopback
from stillhouse.sweeps.session import session

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("gcs_server", "raylet", "dashboard", "DashboardAgent", "RuntimeEnvAgent")
NOUNS = ("cat", "dog", "river", "house", "list", "water", "sun", "moon")


@pytest.mark.ray
def test_a_local_ray_listens_on_loopback_alone(
    tmp_path: Path, ray_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started as every command starts it, with the dashboard, and with a worker that runs."""
    import ray

    monkeypatch.setenv("RAY_TMPDIR", ray_folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    me = psutil.Process()
    before = set(listening(me))
    with session(tmp_path / "runs", device="cpu", local=False, need=Need(workers=2)):
        address = ray.remote(ray.util.get_node_ip_address).options(num_cpus=0.1).remote()
        assert ray.get(address) == "127.0.0.1"
        deadline, found = time.monotonic() + STUCK_S, set[tuple[str, str]]()
        while time.monotonic() < deadline and not all(any(p in n for _, n in found) for p in PARTS):
            found |= set(listening(me)) - before
            time.sleep(0.2)
    assert [pair for pair in found if not is_loopback(pair[0])] == []
    for part in PARTS:
        assert any(part in name for _, name in found), f"{part} was not seen: {found}"
    assert os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") is None, "the setting ends with the start"


@pytest.mark.long
def test_ranks_on_this_machine_listen_on_loopback_alone(tmp_path: Path, tiny_model: Path) -> None:
    """Two ranks as plain processes, as long as they run; for Ray Train see `search/test_nested.py`."""
    (tmp_path / "texts.txt").write_text("".join(f"the {a} and the {b}\n" for a in NOUNS for b in NOUNS))
    small = ["--set", "sentences.held_out=4", "--set", "batch_size=4", "--distil-budget", "200"]
    command = ["train", "mse", "--local", "--workers", "2", "--teacher", str(tiny_model), *small]
    run = subprocess.Popen(
        [sys.executable, "-m", "stillhouse.cli.main", *command, "--corpus", "texts.txt", "--root", "runs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = seen_while_it_runs(run)
    output = run.communicate()[0]
    assert run.returncode == 0, output
    assert [pair for pair in found if not is_loopback(pair[0])] == []
    assert found or not ranks_on_loopback(), "the ranks' own sockets were seen"
    manifests = [json.loads(path.read_text()) for path in tmp_path.glob("runs/stages/*/manifest.json")]
    assert [manifest["workers"] for manifest in manifests] == [2]
    assert list(tmp_path.glob("runs/ray/*")) == [], "the file by which the ranks met is gone"


def test_addresses_are_told_apart() -> None:
    assert [is_loopback(a) for a in ("127.0.0.1", "::1", "::ffff:127.0.0.1")] == [True] * 3
    assert [is_loopback(a) for a in ("0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1")] == [False] * 4
