"""A sweep with two objectives, run as the job itself, from texts to a Pareto front."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import STUCK_S

ROOT = Path(__file__).resolve().parents[2]
SPACE = """
method: ibkd
search:
  space:
    layers: [[0], [0, 1], [0, 1, 2, 3]]
    distil_learning_rate: [1e-6, 1e-5]
  fixed: {distil_batch_size: 32}
  first: {layers: [0], distil_learning_rate: 1e-6}
"""


@pytest.mark.ray
@pytest.mark.long
def test_the_front_of_quality_and_latency(tmp_path: Path, tiny_model: Path, ray_folder: str) -> None:
    random = np.random.default_rng(0)
    nouns = "cat dog sat mat house river water sun moon red green blue fast slow array list text".split()
    lines = (" ".join(random.choice(nouns, random.integers(4, 10))) for _ in range(300))
    (tmp_path / "words.txt").write_text("\n".join(lines))
    (tmp_path / "space.yaml").write_text(SPACE)
    flags = {
        "objectives": "quality,latency",
        "trials": 5,
        "space": "space.yaml",
        "teacher": tiny_model,
        "corpus": "words.txt",
        "distil-budget": 128,
        "refit": 256,
        "refit-top": 1,
        "set": "sentences.held_out=60",
        "compute": "float32",
        "device": "cpu",
        "root": "runs",
        "json": "report.json",
    }
    given = itertools.chain.from_iterable((f"--{name}", str(value)) for name, value in flags.items())
    ran = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "sweep_ibkd.py"), *given],
        cwd=tmp_path,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": ray_folder, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=STUCK_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    trials = report["trials"]
    assert [trial["state"] for trial in trials] == ["COMPLETE"] * 5, "no trial is stopped early"
    for trial in trials:
        assert trial["values"] == [
            trial["metrics"]["agreement_spearman_cosine"],
            trial["metrics"]["latency_ms_p50"],
        ]
        assert trial["values"][1] > 0
    dominated = {
        one["number"]
        for one, other in itertools.permutations(trials, 2)
        if other["values"][0] >= one["values"][0]
        and other["values"][1] <= one["values"][1]
        and other["values"] != one["values"]
    }
    assert sorted(report["front"]) == sorted({trial["number"] for trial in trials} - dominated)
    best = max(trials, key=lambda trial: (trial["values"][0], -trial["values"][1]))
    assert report["student"]["trial"] == best["number"]
    assert re.search(rf"^refit of trial {best['number']}; .*: 256 examples each$", ran.stderr, re.MULTILINE)
    assert f"Pareto front, latency per text, median (ms): trials {report['front'][0]}" in ran.stdout
    page = tmp_path / "runs" / "sweeps" / "ibkd" / "figures" / "sweep.html"
    assert 'id="pareto-front"' in page.read_text()
