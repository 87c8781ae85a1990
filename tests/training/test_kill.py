"""SIGKILL at random moments and the same call again: equal weights, and no metric lost or duplicated."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from metrics_lines import read_metrics
from stand_ins import dev, stage, table, weight_figure  # type: ignore[import-not-found]

from stillhouse.core.artifacts import read_manifest
from stillhouse.training import checkpoint
from stillhouse.training.fit import fit
from stillhouse.training.rank_sync import Interrupted
from stillhouse.values.stage import Stage

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")


def plan() -> Stage:
    result: Stage = stage(budget=8 * 300, dev=dev(), evaluate_every=8 * 60, accumulate=2)
    return result


def train(folder: Path) -> None:
    fit(plan(), table(), folder, evaluate=weight_figure, checkpoint_seconds=0.05)


def test_a_killed_run_equals_an_undisturbed_one(tmp_path: Path) -> None:
    train(tmp_path / "straight")
    chance, kills = random.Random(0), 0
    while not (tmp_path / "killed" / "manifest.json").exists():
        target = newest(tmp_path / "killed") + chance.randint(1, 100)
        process = multiprocessing.get_context("fork").Process(target=train, args=(tmp_path / "killed",))
        process.start()
        while process.is_alive() and newest(tmp_path / "killed") < target:
            time.sleep(chance.uniform(0.001, 0.02))
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
        assert kills < 60, "every run starts from scratch"
    assert kills >= 2
    straight, killed = (read_manifest(tmp_path / name) for name in ("straight", "killed"))
    assert killed["weights_sha256"] == straight["weights_sha256"]
    assert killed["evaluations"] == straight["evaluations"]
    assert _lines(tmp_path / "killed") == _lines(tmp_path / "straight")


def newest(folder: Path) -> int:
    return max(checkpoint.steps(folder), default=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_and_ends(tmp_path: Path, number: signal.Signals) -> None:
    def stop_requested() -> bool:
        if next(steps) == 7:
            os.kill(os.getpid(), number)
        return False

    steps = iter(range(1, 1000))
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=r"at step [78] of 60"):
        fit(stage(), table(), tmp_path, stop_requested=stop_requested)
    assert signal.getsignal(number) == before
    fit(stage(), table(), tmp_path)
    fit(stage(), table(), tmp_path / "straight")
    hashes = {read_manifest(folder)["weights_sha256"] for folder in (tmp_path, tmp_path / "straight")}
    assert len(hashes) == 1


def _lines(folder: Path) -> list[tuple[int, dict[str, float]]]:
    lines = [(line["step"], dict(line["metrics"])) for line in read_metrics(folder / "metrics.jsonl")]
    for _, metrics in lines:
        metrics.pop("examples_per_second", None)
    return lines
