"""A champion that loses on the locked test split is said to lose, and is registered only on request."""

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from stillhouse.core.artifacts import Workspace, read_json, read_manifest
from stillhouse.experiments.preparation import Prepared
from stillhouse.search.observer import Observer, open_tracker
from stillhouse.search.records import TrialRecord
from stillhouse.search.space import Float, Space
from stillhouse.search.trial import Context, follow
from stillhouse.sweeps import deliver
from stillhouse.sweeps.verdict import verdict_on

GOOD = {"learning_rate": 3e-4, "batch_size": 16}
BAD = {"learning_rate": 3e-3, "batch_size": 16}


def measured(**figures: float) -> dict[str, Any]:
    return {who: {"metrics": {"own_cosine_ndcg@10": value}, "cost": {}} for who, value in figures.items()}


def test_a_verdict_is_by_the_selecting_figure_on_the_test_split() -> None:
    tested = measured(student=0.5, baseline=0.6, untrained=0.4, teacher=0.9)
    verdict = verdict_on(tested, "own_pool_cosine_ndcg@10")
    assert verdict.loses and verdict.loses_to == {"baseline": 0.6} and verdict.tag == "baseline"
    assert verdict.sentence() == (
        "The champion loses on the test split: own ndcg@10 0.5000, below the baseline of equal work (0.6000)."
    )
    assert verdict_on(measured(student=0.3, baseline=0.6, untrained=0.4), "own_cosine_ndcg@10").tag == (
        "baseline, untrained"
    )
    won = verdict_on(measured(student=0.6, baseline=0.6, untrained=0.4), "own_cosine_ndcg@10")
    assert not won.loses and won.sentence() == "" and won.tag == "none"
    assert verdict_on(tested, "accuracy").tag == "not measured"


@pytest.mark.parametrize(
    ("champion", "other", "anyway", "registered"),
    [(BAD, GOOD, False, False), (BAD, GOOD, True, True), (GOOD, BAD, False, True)],
)
def test_a_champion_that_loses_is_not_registered(
    champion: dict[str, Any],
    other: dict[str, Any],
    anyway: bool,
    registered: bool,
    context: Context,
    prepared: Prepared,
    workspace: Workspace,
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a real database of MLflow."""
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(database, workspace.root / "mlflow.db")
    facts = {**prepared.facts, "collection": "own: 3 dev and 4 test queries, 9 passages", "texts_left_out": 2}
    prepared = dataclasses.replace(prepared, facts=facts)
    setting = dataclasses.replace(context.setting, distil_budget=256, finetune_budget=0)
    context = dataclasses.replace(context, method="mse", setting=setting)
    for values in (champion, other):
        follow(values, context, lambda report: None)
    metrics = read_manifest(workspace.path(context.plan(champion)))["metrics"]
    record = TrialRecord(
        0, champion, "COMPLETE", (metrics[context.quality],), {64: 0.5}, None, 1.0, 64, metrics, {}
    )
    folder = workspace.root / "sweeps" / "small"
    folder.mkdir(parents=True)
    optuna.create_study(storage=f"sqlite:///{folder / 'study.db'}")
    baseline: Any = SimpleNamespace(best=lambda: (context.plan(other), other))
    monkeypatch.setattr(deliver, "write_figures", pages(monkeypatch, folder))
    tracker = open_tracker(workspace, folder, "small")
    with Observer("small", context, tracker, facts) as observer:
        report = deliver.deliver(
            "small",
            "small-model",
            prepared,
            context,
            folder,
            [record],
            baseline,
            observer,
            register_anyway=anyway,
            space=Space("mse", {"learning_rate": Float(1e-4, 1e-2)}, fixed={"batch_size": 16}),
        )
    printed, loses = capsys.readouterr().err, champion is BAD
    client = MlflowClient(f"sqlite:///{workspace.root / 'mlflow.db'}")
    assert [model.name for model in client.search_registered_models()] == ["small-model"] * registered
    assert ("not registered, since it loses" in printed) is not registered
    found = client.search_runs([client.get_experiment_by_name("stillhouse-small").experiment_id])
    (sweep,) = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    assert (sweep.data.tags["stillhouse.champion.loses_to"] != "none") is loses
    texts = {
        "terminal": printed,
        "report.md": (folder / "report.md").read_text(),
        "MLflow": sweep.data.tags["mlflow.note.content"],
        "page": (folder / "remarks.txt").read_text(),
    }
    for name, text in texts.items():
        assert ("The champion loses on the test split: agreement spearman" in text) is loses, name
        assert "own: 3 dev and 4 test queries, 9 passages. Kept out of training: 2 texts." in text, name
    kept = read_json(folder / "report.json")
    assert kept["verdict"] == report["verdict"] and bool(kept["verdict"]["loses_to"]) is loses
    assert kept["registered_as"] == ("small-model" if registered else None)


def pages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """Note what the page of figures is told, since there is no study to draw."""

    def write(target: Path, *given: Any, remarks: list[str], **more: Any) -> Path:
        target.mkdir(parents=True, exist_ok=True)
        (folder / "remarks.txt").write_text(" ".join(remarks))
        return target

    return write
