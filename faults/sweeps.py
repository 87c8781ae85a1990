"""Faults of real sweeps on real Ray: their processes are ended one after another, until the sweep finishes.

A chain of starts of one command works on one workspace. Every start is disturbed, and the next one continues.
What is there in the end is compared with a sweep that nobody disturbed.
"""

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from injection import Result
from scenarios import World, damaged, leftovers, rows_add_up, rows_of, signature
from surroundings import REPOSITORY
from sweep_processes import environment_of, processes_of, query

NAME = "a sweep on Ray"
"""Name in the report."""
TRIALS = 4
LIMIT = 240.0
"""Seconds that one start of a sweep may take; undisturbed, it takes about one minute on one core."""
NOTICE = 90.0
"""Seconds within which a command must end by itself after one of Ray's own processes has died."""
GONE = 75.0
"""Seconds within which all processes of a command that ended must be gone."""
_SPACE = """
method: ibkd
search:
  space:
    distil_learning_rate: {low: 1e-4, high: 1e-2, log: true}
    distil_temperature: [0.05, 0.1, 0.2]
  first: {distil_learning_rate: 1e-3, distil_temperature: 0.1}
  fixed: {distil_batch_size: 32}
"""


@dataclass(frozen=True)
class Target:
    """What is disturbed.

    Attributes:
        fault: As in the report.
        process: Part of the name of the process; empty for the driver.
        number: The signal; after SIGSTOP comes SIGCONT.
        codes: Exit codes that the command may have; empty if it is to go on.
        when: A file that must be new, as a pattern in the workspace; empty for any moment.
        trials: How many trials must be complete first.
    """

    fault: str
    process: str
    number: signal.Signals
    codes: tuple[int, ...]
    when: str = ""
    trials: int = 0


_KILL, _STOP, _TERM = signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM
_STEP = "stages/*/checkpoints/step-*"
TARGETS = (
    Target("SIGKILL of a teacher actor", "ray::MapWorker", _KILL, ()),
    Target("SIGKILL of the driver while it embeds", "", _KILL, (-_KILL,), "stores/*/part-*"),
    Target("SIGSTOP and SIGCONT of the trial's worker", "ray::ImplicitFunc", _STOP, ()),
    Target("SIGKILL of the trial's worker", "ray::ImplicitFunc", _KILL, ()),
    Target("SIGKILL of the driver in a trial", "", _KILL, (-_KILL,), _STEP),
    Target("SIGKILL of the raylet", "raylet/raylet", _KILL, (1, 2), _STEP),
    Target("SIGSTOP and SIGCONT of the driver", "", _STOP, (), _STEP),
    Target("SIGKILL of the GCS", "gcs_server", _KILL, (1, 2), _STEP),
    Target("SIGTERM of the driver in a trial", "", _TERM, (130,), _STEP),
    Target("SIGKILL of the driver in a refit", "", _KILL, (-_KILL,), _STEP, TRIALS),
    Target("SIGKILL of the trial's worker in a refit", "ray::ImplicitFunc", _KILL, (), _STEP, TRIALS),
    Target("SIGKILL of the driver in the final test", "", _KILL, (-_KILL,), "openings.jsonl"),
)


@dataclass
class Sweep:
    """The command on one workspace.

    Attributes:
        folder: A short path, as Ray's sockets are below it.
        world: The corpus and the teacher.
        outputs: What each start printed.
    """

    folder: Path
    world: World
    outputs: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """The workspace."""
        return self.folder / "runs"

    def start(self) -> "subprocess.Popen[str]":
        """Start the command in a session of its own, with one thread and one trial at a time."""
        (self.folder / "space.yaml").write_text(_SPACE)
        (self.folder / "r").mkdir(exist_ok=True)
        flags = {
            "root": self.root,
            "json": self.folder / "out.json",
            "teacher": self.world.teacher,
            "corpus": self.world.folder / "long.txt",
            "space": self.folder / "space.yaml",
            "trials": TRIALS,
            "concurrency": 1,
            "actors": 1,
            "sentences": 0,
            "distil-budget": 32 * 150,
            "evaluations": 6,
            "max-length": 24,
            "compute": "float32",
            "device": "cpu",
            "refit-top": 1,
        }
        sets = ("sentences.held_out=60", "student.keep=2", "budget.refit.distil=9600")
        command = [sys.executable, str(REPOSITORY / "jobs" / "sweep_ibkd.py"), "--scheduler", "none"]
        command += [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        command += [part for each in sets for part in ("--set", each)]
        log = (self.folder / f"start-{len(self.outputs)}.txt").open("w")
        self.outputs.append(log.name)
        with log:
            return subprocess.Popen(
                command,
                env=environment_of(self.folder),
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def complete(self) -> int:
        """Number of complete trials."""
        found = query(self.root / "sweeps/ibkd/study.db", "select state from trials")
        return sum(state == "COMPLETE" for (state,) in found)

    def processes(self, name: str = "") -> list[psutil.Process]:
        """All live processes of the command, or those whose name or program contains ``name``."""
        return processes_of(self.folder, name)

    def last_words(self) -> str:
        """The end of what the newest start printed."""
        return Path(self.outputs[-1]).read_text(errors="replace")[-1500:] if self.outputs else ""

    def last_line(self) -> str:
        """The last line that the newest start printed."""
        return (self.last_words().strip().splitlines() or [""])[-1]

    def end(self) -> None:
        """End every process of the command."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()


@contextlib.contextmanager
def a_sweep(world: World) -> Iterator[Sweep]:
    """A sweep in a new folder, which is removed with all processes in the end."""
    sweep = Sweep(Path(tempfile.mkdtemp(prefix="fs-", dir="/tmp")), world)
    try:
        yield sweep
    finally:
        sweep.end()
        shutil.rmtree(sweep.folder, ignore_errors=True)


def sweep_signature(root: Path, report: Path) -> dict[str, Any]:
    """What must be equal: artifacts, trials with their curves and weights, what won, runs.

    Of the test log, that there is one: a final test that was killed is another use of its split.
    """
    told = json.loads(report.read_bytes()) if report.exists() else {}
    trials = [
        (
            each["hyper_parameters"],
            each["state"],
            each["values"],
            each["curve"],
            each["attributes"]["weights_sha256"],
        )
        for each in told.get("trials", ())
    ]
    best = told.get("student") or {}
    kept = {name: best.get(name) for name in ("weights_sha256", "dev", "metrics", "hyper_parameters")}
    return {
        **signature(root),
        "trials": trials,
        "student": kept,
        "runs": _runs(root / "mlflow.db"),
        "opened": (root / "openings.jsonl").exists(),
    }


def _runs(database: Path) -> list[Any]:
    """Every run of MLflow by name, with its state and the number of values of its metrics."""
    question = (
        "select name, status, (select count(*) from metrics m "
        "where m.run_uuid = r.run_uuid and key = 'loss') from runs r where lifecycle_stage = 'active'"
    )
    return sorted(query(database, question))


def undisturbed(world: World) -> tuple[dict[str, Any], float]:
    """Run the sweep once without a fault; its signature and its seconds.

    Raises:
        RuntimeError: It failed.
    """
    with a_sweep(world) as sweep:
        started = time.monotonic()
        process = sweep.start()
        code = process.wait(3 * LIMIT)
        if code != 0:
            raise RuntimeError(f"a sweep must end without a fault, but: {sweep.last_words()}")
        return sweep_signature(sweep.root, sweep.folder / "out.json"), time.monotonic() - started


def chain(world: World, seed: int, expected: dict[str, Any], only: str = "") -> list[Result]:
    """Disturb one sweep by all targets in turn; one result per target that could be disturbed.

    Args:
        world: The corpus and the teacher.
        seed: Seed of the moments.
        expected: Signature of the undisturbed sweep.
        only: Only targets whose fault contains this.
    """
    chance = random.Random(f"sweep {seed}")
    with a_sweep(world) as sweep:
        results, process, started = [], sweep.start(), time.monotonic()
        for target in (each for each in TARGETS if only in each.fault):
            if process.poll() is not None and process.returncode == 0:
                break
            result = Result(target.fault, NAME, "the one before", seed, "", steps=None, files=None)
            problems: list[str] = []
            if process.poll() is not None:
                process, started = sweep.start(), time.monotonic()
            found = _wait_for(sweep, process, target, chance)
            if found is None:
                # What is aimed at did not come again: the sweep is past it, or has ended.
                continue
            acted = time.monotonic()
            _disturb(found, target.number, chance)
            if target.codes:
                problems += _ended(sweep, process, target)
            codes = (process.returncode,) if process.poll() is not None else ()
            stall = time.monotonic() - acted
            ran = time.monotonic() - started
            last = sweep.last_words() if problems else ""
            results.append(
                replace(result, codes=codes, problems=tuple(problems), seconds=ran, stall=stall, last=last)
            )
        return _finished(sweep, process, results, expected)


def _wait_for(
    sweep: Sweep, process: "subprocess.Popen[str]", target: Target, chance: random.Random
) -> psutil.Process | None:
    """Wait for the moment and the process; None if the command ends before."""
    before = set(sweep.root.glob(target.when)) if target.when and not target.trials else set()
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        reached = sweep.complete() >= target.trials and (
            not target.when or bool({*sweep.root.glob(target.when)} - before)
        )
        found = sweep.processes(target.process) if reached and target.process else []
        if reached and (found or not target.process):
            time.sleep(chance.uniform(0.0, 0.5))
            return found[0] if found else psutil.Process(process.pid)
        time.sleep(0.02)
    return None


def _disturb(process: psutil.Process, number: signal.Signals, chance: random.Random) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
        if number == signal.SIGSTOP:
            time.sleep(chance.uniform(1.0, 4.0))
            process.send_signal(signal.SIGCONT)


def _ended(sweep: Sweep, process: "subprocess.Popen[str]", target: Target) -> list[str]:
    """Wait for the end of a command that was killed, or whose Ray was, and say what was wrong with it."""
    problems = []
    try:
        code = process.wait(NOTICE)
        if code not in target.codes:
            problems.append(f"the command ended with exit code {code}")
        if code in (1, 2) and not sweep.last_line().startswith("stillhouse: "):
            problems.append("the command said nothing about its end")
    except subprocess.TimeoutExpired:
        problems.append(f"the command had not ended {NOTICE:g} s later")
        process.kill()
        process.wait()
    deadline = time.monotonic() + GONE
    while (left := sweep.processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    if left:
        problems.append(f"processes outlived the command: {', '.join(each.name() for each in left)}")
        sweep.end()
    return problems


def _finished(
    sweep: Sweep,
    process: "subprocess.Popen[str]",
    results: list[Result],
    expected: dict[str, Any],
) -> list[Result]:
    """Let the sweep finish, check what is there, and note what is wrong with each result."""
    problems: list[str] = []
    for _ in range(4):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LIMIT)
        if process.returncode == 0:
            break
        if process.returncode is None:
            problems.append(f"a start took longer than {LIMIT:g} s")
            process.kill()
            process.wait()
        sweep.end()
        process = sweep.start()
    if process.returncode != 0:
        problems.append(f"the command did not finish: {sweep.last_words()}")
    found = sweep_signature(sweep.root, sweep.folder / "out.json")
    equal = found == expected
    if not equal:
        other = sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))
        problems.append(f"not equal to the undisturbed sweep: {', '.join(other)}")
    tables = {key: value for key, value in found.items() if "/" in key}
    if not rows_add_up(tables):
        problems.append("input = stored + quarantined + duplicates does not hold")
    problems += [f"left behind: {each}" for each in leftovers(sweep.root)] if equal else []
    problems += damaged(sweep.root)
    if (left := sweep.processes()) and not _gone(sweep):
        problems.append(f"processes are left: {', '.join(each.name() for each in left)}")
    lost = rows_of(tables) - rows_of({key: value for key, value in expected.items() if "/" in key})
    states = Counter(str(state) for _, state, *_ in found["trials"])
    if problems:
        problems.append(f"trials {dict(states)}")
    return [
        replace(
            each,
            problems=(*each.problems, *problems),
            equal=equal,
            lost=max(0, -lost),
            doubled=max(0, lost),
            last=each.last or (sweep.last_words() if problems else ""),
        )
        for each in results
    ]


def _gone(sweep: Sweep) -> bool:
    deadline = time.monotonic() + GONE
    while sweep.processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    return not sweep.processes()
