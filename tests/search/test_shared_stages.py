"""Stages unaffected by searched values are found, built once and reused by every trial."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.reports.reuse import reuse, reuse_table, reuse_table_markdown
from stillhouse.search import shared_stages as shared_module
from stillhouse.search.shared_stages import build_shared, shared_recordings, shared_stages
from stillhouse.search.space import Categorical, Float, Space
from stillhouse.search.trial import Context, follow

FIXED = {"distil_batch_size": 16, "finetune_batch_size": 16}


@pytest.fixture(autouse=True)
def called_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run cluster tasks as plain calls, and teachers in this process."""
    monkeypatch.setattr(shared_module, "call", lambda function, *arguments, need: function(*arguments))
    monkeypatch.setattr(shared_module, "teacher_actors", lambda device: 0)


def space(**domains: Any) -> Space:
    return Space("ibkd", domains, fixed=FIXED)


@each_row(
    ("domains", "shared"),
    [
        ({"finetune_learning_rate": Float(1e-5, 1e-3), "beta2": Categorical((0.5, 1.0))}, ["distil"]),
        ({"beta1": Float(0.1, 1.0)}, []),
        ({"gamma": Float(0.1, 1.0), "beta2": Float(0.1, 1.0)}, []),
        ({"projection": Categorical((0, 8))}, ["distil"]),
    ],
)
def test_what_is_shared(context: Context, domains: dict[str, Any], shared: list[str]) -> None:
    assert [stage.label for stage in shared_stages(context, space(**domains))] == shared


def test_trials_over_the_last_stage_reuse_the_first(context: Context) -> None:
    workspace = Workspace(Path(context.root))
    searched = space(beta2=Float(0.1, 1.0), finetune_learning_rate=Float(1e-5, 1e-3))
    (distilled,) = build_shared(context, searched, Need())
    assert workspace.finished(distilled)
    before = (workspace.path(distilled) / "manifest.json").stat().st_mtime_ns
    plans = []
    assert build_shared(context, searched, Need()) == [distilled]
    for beta2 in (0.1, 0.7):
        values = {**FIXED, "beta2": beta2, "finetune_learning_rate": 1e-4}
        output: list[dict[str, Any]] = []
        follow(values, context, output.append)
        plans.append(context.plan(values))
        assert next(plans[-1].chain()) == distilled and output[-1]["finished"]
        assert [report["examples_seen"] for report in output] == [32, 64, 80, 96, 96]
    assert (workspace.path(distilled) / "manifest.json").stat().st_mtime_ns == before
    assert len(workspace.listed("stages")) == 3
    first, last = found = reuse(plans, workspace)
    assert (first.label, first.built, first.reused) == ("distil", 1, 1) and first.spared == first.seconds > 0
    assert (last.label, last.built, last.reused, last.spared) == ("finetune", 2, 0, 0)
    assert [line.split()[:3] for line in reuse_table(found).splitlines()[-2:]] == [
        ["distil", "1", "1"],
        ["finetune", "2", "0"],
    ]
    assert reuse_table_markdown(found).startswith("| stage | built | reused |")
    assert reuse(plans[:1], workspace) == []


def test_a_shared_fine_tuned_teacher_records_its_logits_before_the_trials(context: Context) -> None:
    context, workspace = dataclasses.replace(context, method="sra_kd"), Workspace(Path(context.root))
    fixed = {"hidden": 8, "distil_batch_size": 8, "finetune_batch_size": 8}
    searched = Space("sra_kd", {"kd_weight": Categorical((0.5, 1.0))}, fixed=fixed)
    (logits,) = shared_recordings(context, searched)
    assert not workspace.finished(logits)
    stages = build_shared(context, searched, Need())
    assert logits.origin.stage in stages and workspace.finished(logits)  # type: ignore[union-attr]
    of_the_teacher = Space("sra_kd", {"teacher_learning_rate": Float(1e-5, 1e-3)}, fixed=fixed)
    assert not shared_recordings(context, of_the_teacher)


def test_a_shared_stage_that_diverges_ends_the_sweep(context: Context) -> None:
    fixed = {**FIXED, "distil_learning_rate": 1e30}
    searched = Space("ibkd", {"beta2": Float(0.1, 1.0)}, fixed=fixed)
    with pytest.raises(BadInput, match="the stage distil, which all trials share, must not diverge"):
        build_shared(context, searched, Need())
