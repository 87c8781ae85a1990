"""A sweep as `make sweep` runs it, and what its workspace says of where the time went."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from clusters import environment, ray_folder
from harness import ROOT

NAME = "ibkd"
KEPT = ROOT / "runs" / "benchmarks" / "sweep"
"""The workspace of the last sweep of `sweep.py`: what else is asked of a sweep is read there."""


def run_sweep(root: Path, *flags: str, flame: Path | None = None) -> tuple[float, float]:
    """Run the job in a process of its own; when it began and ended, in seconds since 1970.

    Args:
        root: The workspace.
        flags: Command-line flags of the job.
        flame: Where py-spy, which comes with Ray, writes the stacks of all its processes: see `flame`.
    """
    command = [sys.executable, str(ROOT / "jobs" / "sweep_ibkd.py"), "--root", str(root), *flags]
    if flame:
        spy = str(Path(sys.executable).with_name("py-spy"))
        sampling = "--subprocesses --nonblocking --rate 20 --format raw --output".split()
        command = [spy, "record", *sampling, str(flame), "--", *command]
    with ray_folder() as folder:
        began = time.time()
        result = subprocess.run(
            command, env=environment() | {"RAY_TMPDIR": folder}, capture_output=True, text=True
        )
        ended = time.time()
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return began, ended


@dataclass(frozen=True)
class Step:
    """A line of a stage's metrics.

    Attributes:
        step: Steps made.
        time: When it was written, in seconds since 1970.
        training: Whether it belongs to training; otherwise to an evaluation.
    """

    step: int
    time: float
    training: bool


@dataclass(frozen=True)
class Trial:
    """A trial as the study and the journal have it.

    Attributes:
        number: Its place.
        suggested: When the searcher issued it, in seconds since 1970.
        ended: When the driver heard of its end.
        stages: The folders of its stages, first to last.
    """

    number: int
    suggested: float
    ended: float
    stages: tuple[Path, ...]


def has_ended(root: Path) -> bool:
    """Return whether a workspace has a completed sweep."""
    return (root / "sweeps" / NAME / "report.json").exists()


def journal(root: Path) -> list[dict[str, Any]]:
    """Return what the driver sent to its tracker, in order; times in milliseconds."""
    lines = (root / "sweeps" / NAME / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def stages_of_runs(root: Path) -> dict[str, list[Path]]:
    """The stages of every run, such as ``trial-0001`` and ``refit-0001``, first to last."""
    stages: dict[str, list[Path]] = {}
    for entry in journal(root):
        if entry["do"] == "run" and len(entry["key"]) == 3:
            _, run, label = entry["key"]
            folder = root / "stages" / f"{label}-{entry['parameters']['fingerprint']}"
            if folder not in stages.setdefault(run, []):
                stages[run].append(folder)
    return stages


def refit_stages(root: Path) -> set[Path]:
    """The stages of the trials that were trained again."""
    found = stages_of_runs(root).items()
    return {stage for run, stages in found if run.startswith("refit-") for stage in stages}


def trials(root: Path) -> list[Trial]:
    """The trials of a sweep that has ended, by number."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{root}/sweeps/{NAME}/study.db")
    stages = stages_of_runs(root)
    found = []
    for trial in study.get_trials(deepcopy=False):
        if trial.datetime_start and trial.datetime_complete:
            times = trial.datetime_start.timestamp(), trial.datetime_complete.timestamp()
            named = stages.get(f"trial-{trial.number:04d}", [])
            found.append(Trial(trial.number, *times, tuple(named)))
    return found


def steps(stage: Path) -> list[Step]:
    """The lines of a stage's metrics, in order."""
    spool = stage / "metrics.jsonl"
    lines = spool.read_text(encoding="utf-8").splitlines() if spool.exists() else []
    found = [json.loads(line) for line in lines]
    return [Step(line["step"], line["time"], "loss" in line["metrics"]) for line in found]


def evaluation_seconds(stage: Path) -> float:
    """Spent on dev evaluations: from the line of the last step before each to its own."""
    pairs = pairwise(steps(stage))
    return sum(after.time - before.time for before, after in pairs if before.training and not after.training)


def training_seconds(stage: Path) -> float:
    """Spent on steps, as the stage says when it is finished; by its metrics where it was stopped early."""
    manifest = stage / "manifest.json"
    if manifest.exists():
        return float(json.loads(manifest.read_bytes())["seconds"])
    pairs = pairwise(steps(stage))
    return sum(after.time - before.time for before, after in pairs if after.training)
