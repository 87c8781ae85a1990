"""The driver's records of trials: every run is closed, and none is failed for an external fault."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import searcher  # type: ignore[import-not-found]

from stillhouse.cluster.preemption import Preempted
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import Hindered
from stillhouse.search.observer import Observer
from stillhouse.search.records import TrialRecord
from stillhouse.search.trial import Context, follow, run_trial
from stillhouse.tracking import Key
from stillhouse.training.walk import run

QUICK = {"distil_batch_size": 16, "finetune_batch_size": 16}
FULL_DISK = "there must be room on the disk for x, but it is full."


class RecordingTracker:
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

    def finish(self, key: Key, state: str = "finished", reason: str = "") -> None:
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
    trial_key = ("s", "trial-0000")
    assert tracker.ended == {(*trial_key, "distil"): "interrupted", trial_key: "interrupted"}


def test_a_stage_that_a_trial_never_reached_has_no_run(context: Context) -> None:
    stage = next(context.plan(QUICK).chain())
    run(stage, Workspace(Path(context.root)), where=context.where)
    tracker = RecordingTracker()
    with Observer("s", context, tracker, {}) as observer:
        observer.on_trial_start(0, [], trial())
        observer.ended(record("PRUNED"))
    trial_key = ("s", "trial-0000")
    assert tracker.ended == {
        (*trial_key, "distil"): "stopped early",
        trial_key: "stopped early",
        ("s",): "finished",
    }


def test_champion_and_test_openings_are_tags(context: Context) -> None:
    tracker = RecordingTracker()
    with Observer("s", context, tracker, {}) as observer:
        observer.opened("abc", 1)
        for champion in (0, 1):
            observer.mark_champion([replace(record("COMPLETE"), number=n) for n in (0, 1)], champion)
    assert tracker.described == {
        (("s",), "test"): ({"stillhouse.test.suite": "abc", "stillhouse.test.openings": "2"}, ""),
        (("s", "trial-0000"), "champion"): ({"stillhouse.champion": "no"}, "trial 0"),
        (("s", "trial-0001"), "champion"): ({"stillhouse.champion": "yes"}, "trial 1 (champion)"),
    }
    assert ("s",) not in tracker.steps, "opening a test set is not a metric"


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
    assert "trial 0: its node is about to go; it continues from its checkpoint" in capsys.readouterr().out


def test_a_bug_in_a_trial_fails_it(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*arguments: Any, **named: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("stillhouse.search.trial.run", break_down)
    with pytest.raises(ZeroDivisionError):
        run_trial({"trial": 0, "hyper_parameters": QUICK}, context)
