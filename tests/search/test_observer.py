"""The driver's records of trials: every run is closed, and none is failed for an external fault."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import searcher  # type: ignore[import-not-found]

from stillhouse.cluster.preemption import Preempted
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.search.observer import Observer
from stillhouse.search.records import TrialRecord
from stillhouse.search.trial import Context, follow, run_trial
from stillhouse.search.tuner import ReportEnds
from stillhouse.tracking import Key
from stillhouse.tracking.mlflow_tracker import MLflowTracker
from stillhouse.training import checkpoint
from stillhouse.training.metrics_log import NAME as METRICS
from stillhouse.training.metrics_log import read_lines
from stillhouse.training.progress import Stopped
from stillhouse.training.walk import run

QUICK = {"distil_batch_size": 16, "finetune_batch_size": 16}
FULL_DISK = "there must be room on the disk for x, but it is full."


class RecordingTracker(MLflowTracker):
    """A tracker that records its calls."""

    def __init__(self) -> None:
        self.ended: dict[Key, str] = {}
        self.steps: dict[Key, list[int]] = {}
        self.described: dict[tuple[Key, str], tuple[Any, str]] = {}

    def run(self, key: Key, name: str, *output: Any, **more: Any) -> None: ...

    def artifact(self, key: Key, path: Path, folder: str = "") -> None: ...

    def describe(self, key: Key, subject: str, tags: Any = None, name: str = "", note: str = "") -> None:
        self.described[key, subject] = (tags, name)

    def views(self, key: Key, views: Any) -> None: ...

    def register(self, *output: Any, **more: Any) -> str | None: ...

    def metrics(self, key: Key, rows: Any) -> None:
        self.steps.setdefault(key, []).extend(row.step for row in rows)

    def finish(self, key: Key, state: str = "finished", reason: str = "", at: float | None = None) -> None:
        self.ended[key] = state

    def close(self, seconds: float = 10.0) -> str:
        return ""


def trial(number: int = 0) -> Any:
    return SimpleNamespace(config={"trial": number, "hyper_parameters": QUICK})


def record(state: str) -> TrialRecord:
    return TrialRecord(0, QUICK, state, (0.5,), {}, None, 1.0, 96, {}, {})


def test_a_trial_of_an_earlier_process_is_recorded_to_its_end(context: Context) -> None:
    follow(QUICK, context, lambda report: None)
    tracker = RecordingTracker()
    with Observer("s", context, tracker, {}) as observer:
        observer.ended(record("COMPLETE"))
    trial_key = ("s", "trial-0000")
    assert tracker.ended == {
        (*trial_key, "distil"): "finished",
        (*trial_key, "finetune"): "finished",
        trial_key: "finished",
        ("s",): "finished",
    }
    assert tracker.steps[(*trial_key, "distil")][-1] == 4


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt, "interrupted"), (Hindered, "interrupted"), (OSError, "failed")]
)
def test_a_live_trial_is_interrupted_with_the_sweep(
    context: Context, error: type[BaseException], state: str
) -> None:
    tracker = RecordingTracker()
    with pytest.raises(error), Observer("s", context, tracker, {}) as observer:
        observer.on_trial_start(0, [], trial())
        raise error
    assert tracker.ended.pop(("s",)) == state
    assert tracker.ended == {("s", "trial-0000"): "interrupted"}, "no stage has logged anything"


def test_a_stage_that_a_trial_never_reached_has_no_run(context: Context) -> None:
    stage = next(context.plan(QUICK).chain())
    run(stage, Workspace(Path(context.root)), where=context.where)
    tracker = RecordingTracker()
    with Observer("s", context, tracker, {}) as observer:
        observer.on_trial_start(0, [], trial())
        observer.ended(record("PRUNED"))
    trial_key = ("s", "trial-0000")
    assert tracker.ended == {
        (*trial_key, "distil"): "finished",
        trial_key: "stopped early",
        ("s",): "finished",
    }


def test_a_stopped_trial_leaves_no_checkpoints_that_no_other_trial_goes_on_from(context: Context) -> None:
    stage = next(context.plan(QUICK).chain())
    with pytest.raises(Stopped):
        run(stage, context.workspace, where=context.where, on_evaluation=lambda evaluation: True)
    folder = context.workspace.place(stage)
    with Observer("s", context, RecordingTracker(), {}) as observer:
        for number in (0, 1):
            observer.on_trial_start(0, [], trial(number))
        observer.ended(record("PRUNED"))
        assert checkpoint.steps(folder), "trial 1 goes on from it"
        observer.ended(replace(record("FAIL"), number=1))
    assert not checkpoint.steps(folder) and (folder / METRICS).exists()


def test_runs_have_the_times_of_their_logs_and_are_not_opened_again(
    context: Context, database: Path, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    shutil.copy(database, tmp_path / "mlflow.db")
    uri, refitted = f"sqlite:///{tmp_path / 'mlflow.db'}", replace(record("COMPLETE"), number=1, refit=True)
    workspace, plan = context.workspace, context.plan(QUICK)

    def follow_all() -> dict[str, Any]:
        with Observer("s", context, MLflowTracker(uri, "times", tmp_path / "s"), {}, plan) as observer:
            observer.on_trial_start(0, [], trial())
            run(plan, workspace, where=context.where)
            observer.ended(record("COMPLETE"))
            observer.refit_started(refitted, plan)
            observer.refit_ended(refitted, plan)
        client = MlflowClient(uri)
        found = client.search_runs([client.get_experiment_by_name("times").experiment_id])
        parents = {each.info.run_id: each.info.run_name for each in found}
        return {
            f"{parents.get(each.data.tags.get('mlflow.parentRunId'), '')}/{each.info.run_name}": each
            for each in found
        }

    runs = follow_all()
    times = {name: (each.info.start_time, each.info.end_time) for name, each in runs.items()}
    for stage in plan.chain():
        lines = list(read_lines(workspace.path(stage) / METRICS))
        for parent in ("trial 0", "refit of trial 1"):
            began, ended = times[f"{parent}/{stage.label}"]
            assert ended == round(lines[-1]["time"] * 1000)
            first = lines[0]["examples"] / lines[0]["metrics"]["examples_per_second"]
            assert began == round((lines[0]["time"] - first) * 1000) < ended
    began, ended = times["ibkd sweep s/trial 0"]
    assert began <= times["trial 0/distil"][0] and times["trial 0/finetune"][1] <= ended
    for each in runs.values():
        assert each.data.tags["mlflow.source.type"] == "LOCAL" and each.data.tags["mlflow.source.name"]
        assert [d.dataset.digest for d in each.inputs.dataset_inputs]
    again = follow_all()
    assert {n: (r.info.start_time, r.info.end_time, r.info.status) for n, r in again.items()} == {
        name: (*ends, "FINISHED") for name, ends in times.items()
    }


def test_the_best_student_and_test_openings_are_tags(context: Context) -> None:
    tracker = RecordingTracker()
    with Observer("s", context, tracker, {}) as observer:
        observer.opened("abc", 1)
        records = [replace(record("COMPLETE"), refit=refit) for refit in (False, True)]
        for best in records:
            observer.mark_best(records, best)
    assert tracker.described == {
        (("s",), "test"): ({"stillhouse.test.suite": "abc", "stillhouse.test.openings": "2"}, ""),
        (("s", "trial-0000"), "best student"): ({"stillhouse.best_student": "no"}, "trial 0"),
        (("s", "refit-0000"), "best student"): (
            {"stillhouse.best_student": "yes"},
            "refit of trial 0 (best student)",
        ),
    }
    assert ("s",) not in tracker.steps, "opening a test set is not a metric"


def test_what_the_figures_are_of_is_tagged(context: Context) -> None:
    fact = {"what": "Search.", "split": "test", "count": 12, "unit": "queries", "data": "abc"}
    student = {"metrics": {"q": 0.5}, "cost": {}, "trial": 0, "refitted": False}
    about = {"dev": {}, "test": {"search": fact}, "models": {"student": "0ff"}}
    tracker = RecordingTracker()
    with Observer("s", context, tracker, {}) as observer:
        observer.report({"student": student, "trials": [1], "about": about, "verdict": {"against": {}}}, {})
    tags = {"stillhouse.figures.test.search": "test split, 12 queries, data abc"}
    assert tracker.described[("s",), "figures"] == (tags | {"stillhouse.model.student": "0ff"}, "")


def test_a_workspace_failure_in_a_trial_ends_the_search(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device", "x")

    reports: list[dict[str, Any]] = []
    monkeypatch.setattr("stillhouse.search.trial.run", refuse)
    monkeypatch.setattr("ray.tune.report", reports.append)
    run_trial({"trial": 0, "hyper_parameters": QUICK}, context)
    assert FULL_DISK in reports[-1]["hindered"] and not reports[-1]["finished"]

    search = searcher(tmp_path)
    config = search.suggest("first")
    search.on_trial_result("first", reports[-1])
    search.on_trial_complete("first", reports[-1])
    assert [entry.state for entry in search.records()] == ["RUNNING"]
    assert searcher(tmp_path).suggest("second") == config

    with pytest.raises(Hindered, match="full"), Observer("s", context, RecordingTracker(), {}) as observer:
        observer.on_step_end(0, [])
        observer.on_trial_start(0, [], trial())
        observer.on_trial_result(0, [], trial(), reports[-1])
        observer.on_step_end(0, [])


def test_a_trial_whose_node_goes_has_not_failed(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make_way(*arguments: Any, **named: Any) -> None:
        raise Preempted("the node is about to go")

    reports: list[dict[str, Any]] = []
    monkeypatch.setattr("stillhouse.search.trial.run", make_way)
    monkeypatch.setattr("ray.tune.report", reports.append)
    with pytest.raises(Preempted):
        run_trial({"trial": 0, "hyper_parameters": QUICK}, context)
    search, tune = searcher(tmp_path), trial()
    tune.run_metadata = SimpleNamespace(num_failures=2)
    search.suggest("first")
    search.on_trial_result("first", reports[-1])
    assert search.records()[0].state == "RUNNING" and not search.records()[0].curve
    with Observer("s", context, RecordingTracker(), {}) as observer:
        observer.on_trial_start(0, [], tune)
        observer.on_trial_result(0, [], tune, reports[-1])
        observer.on_step_end(0, [])
    assert tune.run_metadata.num_failures == 1, "the error that follows counts as the one that is taken off"
    assert "trial 0: its node is about to go; it continues from its checkpoint" in capsys.readouterr().err


def test_a_bug_in_a_trial_fails_it(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*arguments: Any, **named: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("stillhouse.search.trial.run", break_down)
    assert reasons_of_trial(context, monkeypatch) == ["ZeroDivisionError"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] can't allocate memory: you tried to allocate"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_a_trial_that_does_not_fit_names_its_batches(
    context: Context, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def run_out(*arguments: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr("stillhouse.search.trial.run", run_out)
    (reason,) = reasons_of_trial(context, monkeypatch)
    assert reason.startswith("out of memory with ") and "distil_batch_size=" in reason


def reasons_of_trial(context: Context, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr("ray.tune.report", reports.append)
    run_trial({"trial": 0, "hyper_parameters": QUICK}, context)
    return [report["reason"] for report in reports]


def test_three_first_trials_that_fail_alike_end_the_search(tmp_path: Path, context: Context) -> None:
    search = searcher(tmp_path)
    with Observer("s", context, RecordingTracker(), {}) as observer:
        published: Any = SimpleNamespace(publish=lambda: None)
        ends = ReportEnds(search, observer, trials=8, published=published)
        for turn in range(3):
            ends.on_step_end(0, [])
            config = search.suggest(f"tune{turn}")
            assert isinstance(config, dict)
            search.on_trial_complete(f"tune{turn}", {"reason": "no such layer", "examples_seen": 0})
            ends.on_trial_complete(0, [], SimpleNamespace(config=config))
        with pytest.raises(BadInput, match=r"the first 3 failed with: no such layer\. Remove the cause"):
            ends.on_step_end(0, [])
