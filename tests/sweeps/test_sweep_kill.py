"""The main job, interrupted in every way and started again, gives the results of an undisturbed run.

The job is the real one, in its own process; the reference is searched here, trial by trial, without Ray.
"""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from metrics_lines import read_metrics
from patience import STUCK_S
from sweep_processes import environment_of, processes_of, query

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, locked, read_json, read_manifest
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.sweeps.sweep import lock_of_sweep

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
TRIALS, BASELINES, TEXTS = 4, 1, 9000
REFIT = 32 * 600
"""Examples of the refit, five times those of a trial."""
BEST = " (best student)"
"""Suffix of the name of the best trial's run."""
SPACE = """
method: ibkd
search:
  space:
    distil_learning_rate: {low: 1e-4, high: 1e-2, log: true}
    distil_temperature: [0.05, 0.1, 0.2]
    beta1: {low: 0.1, high: 2.0, log: true}
  first: {distil_learning_rate: 1e-3, distil_temperature: 0.1, beta1: 1.0}
  fixed: {distil_batch_size: 32}
"""
WORDS = (
    "model vector sentence search teacher student layer data index query house river sun moon cat mat".split()
)


def heed_ctrl_c() -> None:
    """Restore Ctrl-C: shells start background processes with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Job:
    """The command, its folder, and the output of each start."""

    folder: Path
    teacher: Path
    outputs: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "runs"

    def arguments(self, space: str = "space.yaml") -> list[str]:
        flags = {
            "root": self.root,
            "json": self.folder / "out.json",
            "teacher": self.teacher,
            "corpus": self.folder / "corpus.txt",
            "space": self.folder / space,
            "trials": TRIALS,
            "baseline-trials": BASELINES,
            "concurrency": 1,
            "actors": 1,
            "sentences": 0,
            "set": "sentences.held_out=60",
            "distil-budget": 32 * 120,
            "evaluations": 6,
            "max-length": 24,
            "compute": "float32",
            "device": "cpu",
            "refit-top": 1,
        }
        sets = {"student.keep": 2, "budget.refit.distil": REFIT, "budget.refit.evaluations": 10}
        return [
            "--scheduler",
            "none",
            *(part for name, value in sets.items() for part in ("--set", f"{name}={value}")),
            *(part for name, value in flags.items() for part in (f"--{name}", str(value))),
        ]

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(ROOT / "jobs" / "sweep_ibkd.py"), *self.arguments()],
            env=environment_of(self.folder),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )

    def ended(self, process: "subprocess.Popen[str]", seconds: float = STUCK_S) -> int:
        output, _ = process.communicate(timeout=seconds)
        self.outputs.append(output)
        return process.returncode

    def start_until(self, condition: Callable[[], bool]) -> "subprocess.Popen[str]":
        """Start the job and wait until a condition holds."""
        process, deadline = self.start(), time.monotonic() + STUCK_S
        while not condition():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                pytest.fail(f"the job ended too early:\n{process.communicate()[0]}")
            time.sleep(0.01)
        return process

    def found(self, pattern: str) -> int:
        return sum(1 for _ in self.root.glob(pattern))

    def complete(self) -> int:
        """Return the number of completed trials."""
        return self.states().get("COMPLETE", 0)

    def states(self) -> Counter[str]:
        rows = query(self.root / "sweeps/ibkd/study.db", "select state from trials")
        return Counter(state for (state,) in rows)

    def processes(self) -> list[psutil.Process]:
        """Return all live processes started for this job."""
        return list(processes_of(self.folder))

    def nothing_is_left(self, seconds: float = 60) -> bool:
        """Return whether all processes end in time."""
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.2)
        return not self.processes()


@pytest.fixture(scope="module")
def job(tiny_model: Path) -> Iterator[Job]:
    """The job with its corpus and its space; all of its processes are ended, and its folder is removed."""
    folder = Path(tempfile.mkdtemp(prefix="sk-", dir="/tmp"))
    (folder / "r").mkdir()
    chance = random.Random(0)
    texts = {" ".join(chance.choices(WORDS, k=8)) for _ in range(TEXTS + 100)}
    (folder / "corpus.txt").write_text("\n".join(sorted(texts)[:TEXTS]) + "\n")
    (folder / "space.yaml").write_text(SPACE)
    (folder / "other.yaml").write_text(SPACE.replace("0.2]", "0.5]"))
    try:
        yield Job(folder, tiny_model)
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(folder) in " ".join([*process.cmdline(), process.environ().get("RAY_TMPDIR", "")]):
                    process.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def straight(job: Job) -> dict[str, Any]:
    """The same search undisturbed, one trial after the other in this process."""
    import torch

    from stillhouse.experiments.preparation import prepare
    from stillhouse.experiments.teacher_placement import Embedding
    from stillhouse.search.records import best_records
    from stillhouse.search.searcher import StudySearcher
    from stillhouse.search.shared_stages import build_stage
    from stillhouse.search.trial import Context, follow
    from stillhouse.training.where import Where

    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        calls: list[Any] = []

        def take(options: Any) -> dict[str, Any]:
            calls.append(options)
            return {"student": None}

        patch.setattr("stillhouse.sweeps.sweep.sweep", take)
        patch.setattr("stillhouse.cli.sweep.write_results", lambda options, report: None)
        main(["sweep", "ibkd", *job.arguments()])
        (options,) = calls
        workspace = Workspace(job.folder / "straight")
        prepared = prepare(options.experiment, workspace, Embedding(local=True))
    setting = prepared.setting
    context = Context(
        "ibkd", "paper", setting, str(workspace.root), Where(device="cpu", threads=1), setting.dev.select
    )
    search = StudySearcher(
        workspace.root / "study.db",
        options.space,
        trials=TRIALS,
        seed=options.experiment.seed,
        objective=context.quality,
        full_budget=setting.distil_budget,
    )
    while isinstance(config := search.suggest("one"), dict):
        reports: list[dict[str, Any]] = []
        follow(config["hyper_parameters"], context, reports.append)
        for report in reports:
            search.on_trial_result("one", report)
        search.on_trial_complete("one", reports[-1])
    assert prepared.refit is not None
    # After the search nothing else runs, so the refits of method and baseline share the cores of the machine.
    where = replace(context.where, threads=max(1, (os.cpu_count() or 1) // 2))
    longer = replace(context, setting=prepared.refit, where=where)
    refit = longer.plan(dict(best_records(search.records())[0].hyper_parameters))
    assert build_stage(refit, longer) == ""
    torch.set_num_threads(threads)
    return {
        "records": search.records(),
        "refit": workspace.path(refit),
        "store": setting[Sentences].store,
        "workspace": workspace,
    }


@pytest.fixture(scope="module")
def resumed(job: Job) -> dict[str, Any]:
    """The job interrupted five times, and the report of the sixth start."""

    def embedding() -> bool:
        return job.found("stores/*/part-*") >= 1

    def training() -> bool:
        return job.found("stages/distil-*/checkpoints/step-*.pt") >= 1

    def in_a_later_trial() -> bool:
        return job.states()["RUNNING"] == 1 and job.complete() >= 1 and training()

    def in_the_baseline() -> bool:
        return job.found("stages/mse-*/checkpoints/step-*.pt") >= 1

    def refitting() -> bool:
        return job.complete() == TRIALS and training()

    ends = []
    for reached, number, code in (
        (embedding, signal.SIGKILL, -signal.SIGKILL),
        (training, signal.SIGINT, 130),
        (in_a_later_trial, signal.SIGKILL, -signal.SIGKILL),
        (in_the_baseline, signal.SIGKILL, -signal.SIGKILL),
        (refitting, signal.SIGTERM, 130),
    ):
        process = job.start_until(reached)
        start_time = time.monotonic()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as Ctrl-C on a terminal does
        else:
            process.send_signal(number)
        assert job.ended(process) == code, job.outputs[-1]
        if code == 130:
            ends.append((time.monotonic() - start_time, job.outputs[-1], job.processes()))
        assert job.nothing_is_left(), job.processes()
    assert job.ended(job.start()) == 0, job.outputs[-1]
    return {"ends": ends, "report": read_json(job.folder / "out.json")}


def test_the_trials_are_those_of_an_undisturbed_search(
    straight: dict[str, Any], resumed: dict[str, Any]
) -> None:
    def output(trial: dict[str, Any]) -> tuple[Any, ...]:
        weights = trial["attributes"]["weights_sha256"]
        return trial["hyper_parameters"], trial["state"], trial["values"], trial["curve"], weights

    expected = [
        (
            dict(record.hyper_parameters),
            "COMPLETE",
            list(record.values),
            [list(point) for point in record.curve.items()],
            record.attributes["weights_sha256"],
        )
        for record in straight["records"]
    ]
    assert len(expected) == TRIALS
    assert [output(trial) for trial in resumed["report"]["trials"]] == expected


def test_the_refit_is_an_undisturbed_one(straight: dict[str, Any], resumed: dict[str, Any]) -> None:
    best, expected = resumed["report"]["student"], read_manifest(straight["refit"])
    assert expected["examples"] == REFIT and best["refitted"]
    assert best["weights_sha256"] == expected["weights_sha256"]
    assert best["dev"] == expected["metrics"]


def test_no_row_is_lost_or_duplicated(job: Job, straight: dict[str, Any], resumed: dict[str, Any]) -> None:
    assert main(["store", "verify", "--root", str(job.root)]) == 0
    stores = [read_manifest(path.parent) for path in job.root.glob("stores/*/manifest.json")]
    assert len(stores) == 3 and sum(store["rows"] for store in stores) == TEXTS
    resumed_result, undisturbed = (
        read_manifest(workspace.path(straight["store"]))
        for workspace in (Workspace(job.root), straight["workspace"])
    )
    assert len(resumed_result["shards"]) >= 4
    assert resumed_result["shards"] == undisturbed["shards"]


def test_every_trial_has_one_run(job: Job, resumed: dict[str, Any]) -> None:
    database = job.root / "mlflow.db"
    runs = query(database, "select run_uuid, name, status from runs where lifecycle_stage = 'active'")
    parents = dict(query(database, "select run_uuid, value from tags where key = 'mlflow.parentRunId'"))
    marked = [name for _, name, _ in runs if name.endswith(BEST)]
    names = {run: name.removesuffix(BEST) for run, name, _ in runs}
    assert len(marked) == 1 and marked[0].startswith(("trial ", "refit of trial "))
    assert {status for *_, status in runs} == {"FINISHED"}
    ((understood,),) = query(database, "select value from params where key = 'data_1'")
    assert understood.startswith("corpus: text, one per line") and "\n  text      <- line" in understood
    chains = Counter(" < ".join(chain(run, names, parents)) for run in names)
    sweep = "ibkd sweep ibkd"
    expected = [sweep]
    for who, title, stage, count in (
        ("student", "", "distil", TRIALS),
        ("baseline", "MSE baseline, ", "mse", BASELINES),
    ):
        tried = [f"{title}trial {number} < {sweep}" for number in range(count)]
        tried.append(f"{title}refit of trial {resumed['report'][who]['trial']} < {sweep}")
        expected += [*tried, *(f"{stage} < {run}" for run in tried)]
    assert chains == Counter(expected)
    steps = query(database, "select run_uuid, key, step, count(*) from metrics group by 1, 2, 3")
    assert {count for *_, count in steps} == {1}
    logged = Counter(run for run, key, *_ in steps if key == "loss")
    lines = [
        sum("loss" in line["metrics"] for line in read_metrics(path))
        for path in job.root.glob("stages/*/metrics.jsonl")
    ]
    assert sorted(logged.values()) == sorted(lines) and len(lines) == TRIALS + 1 + BASELINES + 1


def chain(run: str, names: dict[str, str], parents: dict[str, str]) -> list[str]:
    """Return the names of a run and of its parents."""
    return [names[run], *(chain(parents[run], names, parents) if run in parents else [])]


def test_no_run_is_left_open(job: Job, resumed: dict[str, Any]) -> None:
    assert job.states() == {"COMPLETE": TRIALS}
    assert len((job.root / "openings.jsonl").read_text().splitlines()) == 1
    assert job.found("stages/*/checkpoints/*") == 0
    assert job.found("**/*.tmp") == 0


def test_ctrl_c_and_sigterm_end_the_job_cleanly(resumed: dict[str, Any]) -> None:
    for seconds, output, left in resumed["ends"]:
        assert "interrupted. The same command resumes from here." in output
        assert "Traceback" not in output
        assert seconds < 30 and not left


def test_damaged_databases_and_notes_cost_no_trial_and_no_run(job: Job, resumed: dict[str, Any]) -> None:
    runs = query(job.root / "mlflow.db", "select name, status from runs order by name")
    sweep = job.root / "sweeps" / "ibkd"
    os.truncate(sweep / "study.db", 30_000)
    os.truncate(job.root / "mlflow.db", 200_000)
    for name in ("sweep.json", "confirmed.json", "export.json"):
        content = (sweep / name).read_bytes()
        (sweep / name).write_bytes(content[: len(content) // 2] + b"?" + content[len(content) // 2 + 1 :])
    weights = next(sweep.glob("export/**/*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert job.ended(job.start()) == 0, job.outputs[-1]
    for words in ("study.db is damaged", "Its backup is used", "mlflow.db is damaged", "exported again"):
        assert words in job.outputs[-1], words
    assert job.states() == {"COMPLETE": TRIALS}
    assert read_json(job.folder / "out.json") == resumed["report"]
    assert runs == query(job.root / "mlflow.db", "select name, status from runs order by name")


def test_the_same_command_again_is_quick_and_changes_nothing(job: Job, resumed: dict[str, Any]) -> None:
    before, runs = contents(job.root), query(job.root / "mlflow.db", "select * from runs")
    start_time = time.monotonic()
    assert job.ended(job.start()) == 0, job.outputs[-1]
    assert time.monotonic() - start_time < 60 and "damaged" not in job.outputs[-1]
    assert contents(job.root) == before
    assert query(job.root / "mlflow.db", "select * from runs") == runs
    assert read_json(job.folder / "out.json") == resumed["report"]


def contents(root: Path) -> dict[str, str]:
    """Return the hash of every file except logs and databases."""
    files = (
        path for path in root.rglob("*") if path.is_file() and path.suffix not in (".log", ".db", ".lock")
    )
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_second_command_for_one_sweep_is_refused(job: Job, resumed: dict[str, Any], capsys: Any) -> None:
    with locked(lock_of_sweep(job.root / "sweeps" / "ibkd")):
        assert main(["sweep", "ibkd", *job.arguments()]) == 2
    assert "a sweep must be run by one command at a time" in capsys.readouterr().err


def test_another_space_under_the_same_name_is_refused(job: Job, resumed: dict[str, Any], capsys: Any) -> None:
    before = contents(job.root)
    assert main(["sweep", "ibkd", *job.arguments("other.yaml")]) == 2
    assert "but the space and the search of sweep 'ibkd' differs" in capsys.readouterr().err
    assert contents(job.root) == before
