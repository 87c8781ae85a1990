"""A trial's reports: its curve, its result, and the reason when it diverged."""

import math
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import Workspace, read_manifest, write_manifest
from stillhouse.search.trial import Context, final_report, follow
from stillhouse.sweeps import refit

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


def test_a_refit_that_fails_is_a_line(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_layer(*_: Any) -> str:
        raise KeyError("no such layer")

    monkeypatch.setattr(refit, "build_stage", no_layer)
    assert refit._retrained(context.plan(QUICK), context, QUICK) == "KeyError: 'no such layer'"
