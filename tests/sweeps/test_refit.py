"""The best trials are trained again after the search, for longer and on all of the rows."""

import dataclasses
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
import ray
from local_ray import local_ray
from other_node import OtherNode

from stillhouse.cluster import resources
from stillhouse.cluster.resources import Need, has_room_here, largest_share
from stillhouse.core.artifacts import Workspace, read_json, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.evaluation.serving_cost import cost
from stillhouse.experiments.budget import Budget, Refit
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.reports.entries import COSTS, entries
from stillhouse.search.observer import Observer, open_tracker
from stillhouse.search.records import TrialRecord
from stillhouse.search.space import Float, Space
from stillhouse.search.trial import Context, follow
from stillhouse.sweeps import deliver, room
from stillhouse.sweeps.baseline import Tried
from stillhouse.sweeps.contenders import Candidate
from stillhouse.sweeps.refit import chosen_student, refit, refit_record, refits_of
from stillhouse.tracking.reading import read_runs
from stillhouse.training.models import stage_folder

HARDLY, WELL = {"learning_rate": 1e-6, "batch_size": 16}, {"learning_rate": 3e-4, "batch_size": 16}
DIVERGING = {"learning_rate": 1e18, "batch_size": 16, "clip_norm": 0.0}


class Silent:
    """An observer that notes what it is told."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, bool]] = []
        self.follower = SimpleNamespace(follow=lambda *_: None, leave=lambda *_: None)
        self.title_of_refit = "refit of trial {}".format

    def refit_started(self, record: TrialRecord, stage: Any) -> None:
        assert stage.budget > 64

    def refit_ended(self, record: TrialRecord, stage: Any) -> None:
        assert record.refit and bool(record.metrics) is not bool(record.reason)
        self.ended.append((record.number, bool(record.reason)))


def shorter(context: Context) -> Context:
    setting = dataclasses.replace(context.setting, distil_budget=64, finetune_budget=0)
    return dataclasses.replace(context, method="mse", setting=setting)


def longer(context: Context) -> Context:
    return dataclasses.replace(context, setting=dataclasses.replace(context.setting, distil_budget=512))


def trial(number: int, values: dict[str, Any], context: Context, quality: float | None = None) -> TrialRecord:
    """Train a trial, or pretend that one has this quality."""
    metrics: dict[str, Any] = {context.quality: quality}
    if quality is None:
        follow(values, context, lambda report: None)
        stage = context.plan(values)
        metrics = read_manifest(Workspace(Path(context.root)).path(stage))["metrics"]
    value: Any = metrics[context.quality]
    return TrialRecord(number, values, "COMPLETE", (value,), {64: value}, None, 1.0, 64, metrics, {})


def candidate_of(record: TrialRecord, context: Context) -> Candidate:
    stage = context.plan(dict(record.hyper_parameters))
    return Candidate(record, stage, Workspace(Path(context.root)).path(stage))


def test_a_refit_is_longer_than_a_trial_and_has_all_of_the_rows() -> None:
    budget = Budget(distil=100, finetune=10, fraction=0.5, refit=Refit(distil=300, evaluations=7))
    assert budget.refit.asked_for and Refit(finetune=20).asked_for
    assert not Budget().refit.asked_for and not Refit(distil=300, top=0).asked_for
    longer = budget.of_refit()
    assert (longer.distil, longer.finetune, longer.evaluations, longer.fraction) == (300, 10, 7, 1.0)
    only = dataclasses.replace(budget, refit=Refit(finetune=20)).of_refit()
    assert (only.distil, only.finetune) == (100, 20)
    for short in (Refit(distil=99), Refit(finetune=9)):
        with pytest.raises(BadInput, match=r"`budget.refit.\w+ >= budget.\w+` must hold.*--refit-top 0"):
            dataclasses.replace(budget, refit=short).of_refit()


def test_an_experiment_prepares_all_rows_for_a_refit(
    experiment: Experiment, prepared: Prepared, workspace: Workspace
) -> None:
    """And only a share of them for the trials."""
    asked = {"budget.fraction": 0.5, "budget.refit.distil": 4096, "budget.refit.finetune": 2048}
    both = prepare(changed(experiment, asked), workspace, Embedding(local=True))
    half, whole = both.setting, both.refit
    assert whole is not None and prepared.refit is None
    assert whole.data == prepared.setting.data and half[Sentences].rows == round(whole[Sentences].rows / 2)
    assert (whole.distil_budget, whole.finetune_budget, whole.evaluations) == (4096, 0, 4)
    assert half.distil_budget == prepared.setting.distil_budget and half.evaluations != 4


class Task:
    """A task of Ray that runs in this process as soon as it is started."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def options(self, **_: Any) -> "Task":
        return self

    def remote(self, *given: Any) -> "Future[str]":
        done: Future[str] = Future()
        done.set_result(self.function(*given))
        return done


def test_the_best_trials_are_trained_again_at_once_and_found_again(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "nodes_up", lambda: [({"CPU": 2.0}, 1.0)])
    monkeypatch.setattr(ray, "remote", Task)
    monkeypatch.setattr(ray, "wait", lambda tasks, num_returns: (tasks[:1], tasks[1:]))
    monkeypatch.setattr("stillhouse.sweeps.refit.reason_of", Future.result)
    check_refits(context)


@pytest.mark.ray
@pytest.mark.long
def test_by_real_tasks_of_ray(context: Context) -> None:
    with local_ray(2):
        check_refits(context)
        room = [has_room_here(need) for need in (Need(cpus=2), Need(cpus=3), Need(5, cpus=2), Need(gpus=1))]
    assert room == [True, False, True, False], "on this node, for one worker"


def check_refits(context: Context) -> None:
    """Check that what is finished is not trained again, and that what diverges is left out."""
    context = shorter(context)
    records = [
        trial(0, {**WELL, "batch_size": 32}, context, 0.05),
        trial(1, HARDLY, context, 0.1),
        trial(2, WELL, context, 0.2),
        trial(3, DIVERGING, context, 0.3),
    ]
    observer: Any = Silent()
    again = refits_of(longer(context), records, 3, observer)
    students = [student for student in refit(again, Need()) if student]
    assert [student.record.number for student in students] == [2, 1], "the best trial comes first"
    assert all(student.record.refit and student.stage.budget == 512 for student in students)
    assert dict(observer.ended) == {1: False, 2: False, 3: True}
    before = [(student.folder / "manifest.json").stat().st_mtime_ns for student in students]
    found = [student for student in refit(again, Need()) if student]
    assert found == students
    assert before == [(student.folder / "manifest.json").stat().st_mtime_ns for student in students]


def test_a_refit_that_is_no_better_is_not_delivered(
    context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    context = shorter(context)
    short, long = candidate_of(trial(0, WELL, context, 0.14), context), []
    for values in (HARDLY, WELL):
        record = dataclasses.replace(trial(0, values, longer(context)), refit=True)
        long.append(candidate_of(record, longer(context)))
    worse, better = long
    assert worse.record.metrics[context.quality] < 0.14 < better.record.metrics[context.quality]
    assert chosen_student(short, [], context.quality) == short and not capsys.readouterr().err
    assert chosen_student(short, [worse], context.quality) == short
    assert "No refit is better than trial 0 on dev" in capsys.readouterr().err
    assert chosen_student(short, [worse, better], context.quality) == better


def test_the_shares_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "nodes_up", lambda: [({"CPU": 8.0}, 1.0)])
    assert [largest_share(Need(), count).cpus for count in (1, 2, 3, 20)] == [8, 4, 2, 1]
    monkeypatch.setattr(resources, "nodes_up", lambda: [({"CPU": 8.0}, 2.0), ({"GPU": 1.0}, 1.0)])
    assert [largest_share(Need(), count).cpus for count in (1, 2, 3)] == [8, 8, 4]
    for own in (Need(workers=2), Need(gpus=1.0, cpus=3.0)):
        assert largest_share(own, 1) == own


def share_of_eight(need: Need, count: int) -> Need:
    return dataclasses.replace(need, cpus=8 / count)


@pytest.mark.parametrize("small_head", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_refit_is_tested_beside_its_trial_exported_and_tracked(
    context: Context,
    prepared: Prepared,
    workspace: Workspace,
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    small_head: bool,
) -> None:
    """In a real database of MLflow."""
    node, need = OtherNode(), Need(workers=2, cpus=3)
    monkeypatch.setattr(room, "has_room_here", lambda asked: not (small_head and asked == need))
    monkeypatch.setattr(room, "largest_share", share_of_eight)
    monkeypatch.setattr(room, "call", node)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (workspace.root / "mlflow.db").write_bytes(database.read_bytes())
    context = shorter(context)
    # Both were trained; the figures are pretended, so that the refit is better.
    for values in (HARDLY, WELL):
        trial(0, values, context)
    records = [trial(0, HARDLY, context, 0.05), trial(1, WELL, context, 0.1)]
    refitted = candidate_of(trial(1, WELL, longer(context)), longer(context))
    again = refit_record(records[1], refitted.stage, context.quality, workspace)
    refitted = dataclasses.replace(refitted, record=again)
    folder = workspace.root / "sweeps" / "small"
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_text("{}")
    optuna.create_study(storage=f"sqlite:///{folder / 'study.db'}")
    observer: Any = SimpleNamespace()
    baseline = Tried("MSE baseline", context, records[:1], observer)
    monkeypatch.setattr(deliver, "cost", partial(cost, runs=1, calls=1))
    monkeypatch.setattr(deliver, "write_figures", lambda target, *_, **__: target.mkdir() or target)
    tracker = open_tracker(workspace, folder, "small")
    with Observer("small", context, tracker, prepared.facts) as observer:
        for record in records:
            observer.ended(record)
        observer.refit_started(refitted.record, refitted.stage)
        observer.refit_ended(refitted.record, refitted.stage)
        report = deliver.deliver(
            "small",
            "small-model",
            prepared,
            context,
            folder,
            records,
            baseline,
            observer,
            need=need,
            space=Space("mse", {"learning_rate": Float(1e-7, 1e-2)}, fixed={"batch_size": 16}),
            refits=lambda: ([refitted], []),
        )
    steps = ["the teacher on dev", "all models on test", "the export", "the figures"]
    assert node.used == [Need(workers=1, cpus=8)] * len(steps) * small_head
    student, printed = report["student"], capsys.readouterr().out
    assert student["trial"] == 1 and student["refitted"] and student["dev"] == again.metrics
    assert student["weights_sha256"] == read_manifest(refitted.folder)["weights_sha256"]
    assert stage_folder("small", workspace) == refitted.folder
    assert report["trial"]["metrics"] != student["metrics"]
    about = report["about"]
    assert {each["split"] for each in about["test"].values()} == {"test"} and about["dev"]
    assert all(each["count"] and len(each["data"]) == 16 for each in about["test"].values())
    assert set(about["models"]) == {"student", "teacher"}
    said = "The best student is the refit of trial 1: 512 examples instead of 64"
    assert said in printed and "its trial" in printed
    assert said in (folder / "report.md").read_text()
    assert read_json(folder / "report.json")["remarks"] == report["remarks"] != []
    runs = read_runs(f"sqlite:///{workspace.root / 'mlflow.db'}", experiment="small")
    rows = {row.name: row for row in entries(runs)}
    best, before = rows["refit of trial 1"], rows["trial 1"]
    assert (best.kind, before.kind, rows["trial 0"].kind) == ("best", "trial", "trial")
    assert {"seconds", *COSTS} <= set(best.figures), "the row of what was exported is complete"
    lines = printed.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("best student: "))
    assert first < next(place for place, line in enumerate(lines) if line.startswith("untrained student"))
    assert lines[first - 1] == lines[first + 1] == "" and " of its size, " in lines[first]
    marked = [line for line in (folder / "report.md").read_text().splitlines() if line.startswith("| *")]
    assert [line.split(" | ")[0] for line in marked] == ["| *refit of 1"]
    figure = f"test/{context.quality}"
    assert best.figures[figure] == pytest.approx(student["metrics"][context.quality])
    assert before.figures[figure] == pytest.approx(report["trial"]["metrics"][context.quality])
    assert figure not in rows["trial 0"].figures
    assert best.figures[f"dev/{context.quality}"] == pytest.approx(again.metrics[context.quality])
