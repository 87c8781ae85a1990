"""A trial's reports: its curve, its result, and the reason when it diverged."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace, read_manifest, write_manifest
from stillhouse.corpora.tables import write_rows
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.search.trial import Context, final_report, follow
from stillhouse.sweeps import baseline, refit
from stillhouse.sweeps.baseline import BATCH_SIZE, LEARNING_RATES, batch_size_of, equal_work, texts_of
from stillhouse.values.data import Mined

QUICK = {"distil_batch_size": 16, "finetune_batch_size": 16}


def reports(context: Context, **values: Any) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    follow({**QUICK, **values}, context, output.append)
    return output


def test_a_trial_reports_its_curve_and_then_its_result(context: Context) -> None:
    output = reports(context)
    assert [report["examples_seen"] for report in output] == [32, 64, 80, 96, 96]
    assert [report["finished"] for report in output] == [False] * 4 + [True]
    assert all(math.isfinite(report[context.quality]) for report in output)
    final, folder = output[-1], Path(output[-1]["folder"])
    manifest = read_manifest(folder)
    assert final["weights_sha256"] == manifest["weights_sha256"]
    assert final["metrics"] == manifest["metrics"] and final[context.quality] in final["metrics"].values()
    weights = (folder / "student.safetensors").stat().st_size
    assert final["size_mb"] == pytest.approx(weights / 1e6)


def test_the_result_is_that_of_the_kept_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "student.safetensors").write_bytes(bytes(2_000_000))
    evaluations = [{"metrics": {"mrr": value}} for value in (0.2, 0.7, 0.4)]
    content = {"metrics": {"mrr": 0.7}, "evaluations": evaluations, "weights_sha256": "abc"}
    write_manifest(tmp_path, content)
    result = final_report(tmp_path, "mrr", budget=96, seconds=3.0)
    assert (result["mrr"], result["metrics"], result["examples_seen"]) == (0.7, {"mrr": 0.7}, 96)
    assert (result["size_mb"], result["weights_sha256"], result["finished"]) == (2.0, "abc", True)


def test_a_repeated_trial_replays_its_reports(context: Context) -> None:
    first, second = reports(context), reports(context)
    for report in (*first, *second):
        report.pop("seconds")
    assert first == second


def test_a_trial_that_diverges_says_why_and_has_no_result(context: Context) -> None:
    output = reports(context, distil_learning_rate=1e18)
    assert "must be finite" in output[-1]["reason"] or "collapsed" in output[-1]["reason"]
    assert math.isnan(output[-1][context.quality]) and not output[-1]["finished"]
    assert not any(report["finished"] for report in output)
    last = context.plan({**QUICK, "distil_learning_rate": 1e18})
    assert not Workspace(Path(context.root)).finished(last)


def test_the_baseline_encodes_the_same_number_of_texts(context: Context) -> None:
    setting = equal_work(context, context.plan(QUICK))
    assert setting.distil_budget == 64 + 32 * 3
    assert setting.get(Pairs) is None and setting.finetune_budget == 0
    bare = dataclasses.replace(context.setting.having(Pairs, None), finetune_budget=0)
    alone = dataclasses.replace(context, setting=bare)
    assert equal_work(alone, alone.plan(QUICK)) == alone.setting
    crossed = dataclasses.replace(context, method="crosslingual")
    plan = crossed.plan({"batch_size": 16, "unit": 2, "bottleneck": 8})
    assert equal_work(crossed, plan).distil_budget == 2 * 4 * 64, "four stages of pairs"


def test_texts_of_counts_query_passage_and_negatives(context: Context) -> None:
    labelled, workspace = context.setting[Pairs].examples, Workspace(Path(context.root))
    assert labelled is not None and isinstance(labelled.origin, Mined)
    more = dataclasses.replace(labelled, origin=dataclasses.replace(labelled.origin, negatives=4))
    assert texts_of(more, workspace) == 6 and texts_of(labelled.origin.pairs, workspace) == 2
    given = write_rows(
        workspace,
        dict(labelled.columns),
        {"query": np.arange(4), "passage": np.arange(4), "negatives": np.arange(8).reshape(4, 2)},
        "given",
    )
    assert texts_of(given, workspace) == 4


def test_the_batch_of_the_baseline_fits_its_rows_and_its_budget(context: Context) -> None:
    few = context.setting
    rows = few[Sentences].rows
    many = few.having(Sentences, dataclasses.replace(few[Sentences], rows=1000))
    sizes = [
        batch_size_of(dataclasses.replace(setting, distil_budget=budget))
        for setting, budget in ((few, 4096), (few, 16), (many, 4096))
    ]
    assert rows < BATCH_SIZE and sizes == [rows, 16, BATCH_SIZE]


def test_the_baseline_starts_from_equal_upstream_training(context: Context) -> None:
    baseline = dataclasses.replace(context, method="mse", setting=equal_work(context, context.plan(QUICK)))
    output: list[dict[str, Any]] = []
    follow({"learning_rate": LEARNING_RATES[0], "batch_size": 16}, baseline, output.append)
    assert output[-1]["finished"] and output[-1]["examples_seen"] == 160


def test_students_of_the_baseline_and_refits_that_fail_are_lines(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[float] = []

    def fail_at_one(values: dict[str, Any], context: Context, report: Any) -> None:
        if values["learning_rate"] == 3e-4:
            raise RuntimeError("CUDA out of memory. Tried to allocate")
        if values["learning_rate"] == 1e-3:
            report({"reason": "the loss must be finite"})
            return
        trained.append(values["learning_rate"])

    monkeypatch.setattr(baseline, "follow", fail_at_one)
    choices = [{"learning_rate": rate, "batch_size": 8} for rate in (3e-4, 1e-3, 1e-4)]
    assert baseline._train(choices, context).splitlines() == [
        "rate 0.0003 failed: out of memory with batch_size=8",
        "rate 0.001 failed: the loss must be finite",
    ]
    assert trained == [1e-4]

    def no_layer(*_: Any) -> str:
        raise KeyError("no such layer")

    monkeypatch.setattr(refit, "build_stage", no_layer)
    assert refit._retrained(context.plan(QUICK), context, QUICK) == "KeyError: 'no such layer'"
