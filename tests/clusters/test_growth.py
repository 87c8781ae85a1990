"""A sweep on a cluster that starts without any node: it brings nodes, uses later ones, frees them."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from growing import GrowingCluster, growing_cluster  # type: ignore[import-not-found]
from small_experiment import sentences  # type: ignore[import-not-found]

pytestmark = pytest.mark.ray
TEXTS = 40_000


@pytest.fixture
def cluster() -> Iterator[GrowingCluster]:
    with tempfile.TemporaryDirectory(prefix="g", dir="/tmp") as short:
        with growing_cluster(Path(short), port=6731, node={"CPU": 1}, most=1) as running:
            yield running


class Command:
    """The command line in a process of its own, with what it has printed so far.

    Args:
        words: The command's words.
        folder: Where it runs; a folder that has nothing to do with the cluster.
    """

    def __init__(self, words: list[str], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.lines: list[tuple[float, str]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stillhouse", *words],
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    @property
    def said(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def wait_for(self, pattern: str, seconds: float) -> None:
        """Wait until it has printed something."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.said):
            assert time.monotonic() < deadline and self.process.poll() is None, self.said
            time.sleep(0.2)


def test_a_sweep_brings_its_nodes_and_frees_them(
    cluster: GrowingCluster, tmp_path: Path, tiny_model: Path
) -> None:
    (tmp_path / "words.txt").write_text("\n".join(sentences(TEXTS)))
    words = (
        f"sweep mse --corpus {tmp_path}/words.txt --teacher {tiny_model} --layers 0 --sentences 0 "
        "--max-length 16 --distil-budget 20000 --trials 6 --scheduler none --set compute=float32 "
        f"--address {cluster.address} --root {tmp_path}/runs --json {tmp_path}/r.json"
    )
    sweep = Command(words.split(), tmp_path / "elsewhere")
    sweep.wait_for("waiting up to 15 min for nodes: a trial needs 1 CPU", 120)
    sweep.wait_for("joined with 1 CPU: 2 nodes", 120)
    sweep.wait_for(r"embedding: [1-9]", 240)
    cluster.allow(2)
    sweep.wait_for("joined with 1 CPU: 3 nodes", 240)
    assert sweep.process.wait(900) == 0, sweep.said
    report = json.loads((tmp_path / "r.json").read_text())
    assert [trial["state"] for trial in report["trials"]] == ["COMPLETE"] * 6
    print(sweep.said)
