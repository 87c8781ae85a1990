"""A local Ray that loses a process ends the command, in words."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import STUCK_S

ROOT = Path(__file__).resolve().parents[2]
_WORKS = """
import sys, time
from pathlib import Path
from stillhouse.sweeps.session import session
with session(Path(sys.argv[1]), device="cpu", local=False):
    Path(sys.argv[2]).touch()
    time.sleep(120)
"""


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
def test_the_loss_of_a_process_of_ray_is_said_at_once(tmp_path: Path, ray_folder: str, part: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "RAY_TMPDIR": ray_folder}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-c", _WORKS, str(tmp_path / "runs"), str(tmp_path / "ready")]
    printed = tmp_path / "printed.txt"
    with printed.open("w") as out:  # Not a pipe: what Ray has started holds it a while longer.
        run = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    deadline = time.monotonic() + STUCK_S
    while not (tmp_path / "ready").exists():
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    children = psutil.Process(run.pid).children(recursive=True)
    (lost,) = [each for each in children if each.name() == part]
    lost.kill()
    assert run.wait(10) == 2
    said = printed.read_text()
    assert f"Ray's process {part} has ended" in said and "the same command again" in said
