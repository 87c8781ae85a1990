"""A student that is worse on the locked test split is said to be, and is registered only on request."""

import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest

from stillhouse.core.artifacts import Workspace, read_json, read_manifest
from stillhouse.evaluation.items import Items, Part, as_data
from stillhouse.evaluation.serving_cost import cost
from stillhouse.experiments.preparation import Prepared
from stillhouse.search.observer import Observer, open_tracker
from stillhouse.search.records import TrialRecord
from stillhouse.search.space import Float, Space
from stillhouse.search.trial import Context, follow
from stillhouse.sweeps import deliver
from stillhouse.sweeps.baseline import Tried
from stillhouse.sweeps.verdict import verdict_on

GOOD = {"learning_rate": 3e-4, "batch_size": 16}
BAD = {"learning_rate": 3e-3, "batch_size": 16}


FIGURE = "own_cosine_ndcg@10"
TITLES = {"baseline": "MSE baseline", "untrained": "untrained student"}


def measured(items: bool = True, **values: list[float]) -> dict[str, Any]:
    """Models with these results per query."""
    return {
        who: {"metrics": {FIGURE: sum(each) / len(each)}}
        | ({"items": json.loads(json.dumps(as_data(Items((Part(np.array(each)),)))))} if items else {})
        for who, each in values.items()
    }


def test_the_paired_test_on_the_test_split_decides() -> None:
    """By the figure of the whole collection where a pool selected; only what is worse beyond chance loses."""
    draw = np.random.default_rng(0)
    own = draw.uniform(0.3, 0.5, 600)
    others = {"baseline": own - 0.1 + draw.normal(0, 0.2, 600), "untrained": own + draw.normal(0, 0.3, 600)}
    tested = measured(student=own.tolist(), **{who: each.tolist() for who, each in others.items()})
    verdict = verdict_on(tested, "own_pool_cosine_ndcg@10", TITLES)
    words = {who: one["verdict"] for who, one in verdict.report()["against"].items()}
    assert words == {"baseline": "better", "untrained": "not told apart"} and verdict.tag == "none"
    better, same = verdict.sentences()
    assert better.startswith("Against the MSE baseline: better (p = 0.0002), ")
    assert same.startswith("Against the untrained student: no difference (p = ") and "interval -0.0" in same
    worse = verdict_on(measured(student=[0.1] * 9, baseline=[0.2] * 9), FIGURE, TITLES)
    assert worse.worse_than == ["MSE baseline"] == [worse.tag]
    assert "worse (p = 0.0039), 0.1000 to 0.2000" in worse.sentences()[0]


def test_a_figure_without_items_has_no_interval_and_is_not_worse() -> None:
    verdict = verdict_on(measured(items=False, student=[0.1] * 9, baseline=[0.2] * 9), FIGURE, TITLES)
    assert verdict.worse_than == [] and verdict.report()["against"]["baseline"]["low"] is None
    assert verdict.sentences() == [
        "Against the MSE baseline: 0.1000 to 0.2000, a difference of -0.1000 with no interval."
    ]
    assert verdict_on(measured(student=[0.1]), "accuracy", TITLES).tag == "not measured"


@pytest.mark.parametrize(
    ("best", "other", "anyway", "registered"),
    [(BAD, GOOD, False, False), (BAD, GOOD, True, True), (GOOD, BAD, False, True)],
)
def test_a_student_that_is_worse_is_not_registered(
    best: dict[str, Any],
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
    for values in (best, other):
        follow(values, context, lambda report: None)
    metrics = read_manifest(workspace.path(context.plan(best)))["metrics"]
    record = TrialRecord(
        0, best, "COMPLETE", (metrics[context.quality],), {64: 0.5}, None, 1.0, 64, metrics, {}
    )
    folder = workspace.root / "sweeps" / "small"
    folder.mkdir(parents=True)
    optuna.create_study(storage=f"sqlite:///{folder / 'study.db'}")
    theirs = read_manifest(workspace.path(context.plan(other)))["metrics"]
    rival = dataclasses.replace(record, hyper_parameters=other, metrics=theirs)
    observer: Any = SimpleNamespace()
    baseline = Tried("MSE baseline", context, [rival], observer)
    monkeypatch.setattr(deliver, "cost", partial(cost, runs=1, calls=1))
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
    captured, worse = capsys.readouterr(), best is BAD
    printed = captured.out + captured.err
    client = MlflowClient(f"sqlite:///{workspace.root / 'mlflow.db'}")
    assert [model.name for model in client.search_registered_models()] == ["small-model"] * registered
    assert ("not registered, since it is worse than the MSE baseline" in printed) is not registered
    found = client.search_runs([client.get_experiment_by_name("stillhouse-small").experiment_id])
    (sweep,) = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    assert (sweep.data.tags["stillhouse.worse_than"] != "none") is worse
    texts = {
        "terminal": printed,
        "report.md": (folder / "report.md").read_text(),
        "card": (folder / "export" / "README.md").read_text(),
        "MLflow": sweep.data.tags["mlflow.note.content"],
        "page": (folder / "remarks.txt").read_text(),
    }
    for name, text in texts.items():
        assert ("Against the MSE baseline: worse (p " in text) is worse, name
        assert "own: 3 dev and 4 test queries, 9 passages. Kept out" in text or name == "card", name
    kept = read_json(folder / "report.json")
    assert kept["verdict"] == report["verdict"]
    assert (kept["verdict"]["against"]["baseline"]["verdict"] == "worse") is worse
    assert "items" not in kept["student"] and "items" not in kept["baseline"]
    assert kept["registered_as"] == ("small-model" if registered else None)


def pages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """Note what the page of figures is told, since there is no study to draw."""

    def write(target: Path, *given: Any, remarks: list[str], **more: Any) -> Path:
        target.mkdir(parents=True, exist_ok=True)
        (folder / "remarks.txt").write_text(" ".join(remarks))
        return target

    return write
