"""What is said before a sweep or a training: what will be done, how much, and about how long."""

import dataclasses
from pathlib import Path

import pytest
from small_experiment import quick_experiment

from stillhouse.core.artifacts import MANIFEST, Workspace, write_manifest
from stillhouse.core.identity import canonical
from stillhouse.core.job_clock import JobClock
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Categorical, Space
from stillhouse.search.trial import Context
from stillhouse.sweeps.ahead import ahead_of_sweep, ahead_of_training, training_left
from stillhouse.sweeps.baseline import baseline_search
from stillhouse.sweeps.forecast import (
    DELIVERY,
    REFITS,
    SEARCH,
    Forecast,
    Remaining,
    keep_seconds,
    seconds_of_parts,
    seconds_per_model,
)
from stillhouse.training.estimate import kind_of
from stillhouse.values.stage import Stage

SMALL = {"distil_batch_size": 16, "finetune_batch_size": 16}


def trained(workspace: Workspace, stage: Stage, seconds: float) -> None:
    """What remains of a finished stage, as far as an estimate reads it."""
    folder = workspace.path(stage)
    write_manifest(folder, {"seconds": seconds, "examples": stage.examples_seen, "plan": canonical(stage)})


@pytest.fixture
def plan(context: Context) -> Stage:
    """Two stages: distil, then finetune on triples."""
    return context.plan(SMALL)


def test_an_estimate_is_what_the_same_student_took_per_example(plan: Stage, workspace: Workspace) -> None:
    distil, finetune = plan.chain()
    assert training_left([distil], workspace, 1.0) is None
    trained(workspace, distil, seconds=32.0)
    longer = dataclasses.replace(distil, budget=10 * distil.budget, seed=7)
    assert training_left([longer], workspace, 1.0) == pytest.approx(320.0)
    assert training_left([longer], workspace, 2.0) == pytest.approx(160.0)
    texts = kind_of(finetune).texts
    three = 32.0 / distil.examples_seen * texts * finetune.examples_seen
    assert texts > 1 and training_left([finetune], workspace, 1.0) == pytest.approx(three)
    assert training_left([longer, longer], workspace, 1.0) == pytest.approx(320.0), (
        "what they share counts once"
    )
    (workspace.path(distil) / MANIFEST).write_text("no JSON")
    assert training_left([longer], workspace, 1.0) is None


def test_a_training_says_its_stages_and_skips_what_is_finished(plan: Stage, workspace: Workspace) -> None:
    distil, finetune = plan.chain()
    both = f"distil, {distil.examples_seen} examples; finetune, {finetune.examples_seen} examples"
    assert ahead_of_training([plan], workspace) == f"To do: 2 stages: {both}."
    trained(workspace, distil, seconds=1.0)
    rest = f"To do: stage finetune, {finetune.examples_seen} examples (distil is finished)"
    assert ahead_of_training([plan], workspace) == f"{rest}."
    other = dataclasses.replace(finetune, seed=7)
    trained(workspace, other, seconds=600.0)
    assert ahead_of_training([plan], workspace) == f"{rest}; about 10:00, as similar stages took here."
    trained(workspace, finetune, seconds=1.0)
    assert ahead_of_training([plan], workspace) == "To do: nothing, every stage is finished."


def test_a_sweep_says_its_shared_stages_trials_baseline_refits_and_test(
    plan: Stage, context: Context, workspace: Workspace, tmp_path: Path, tiny_model: Path
) -> None:
    experiment = quick_experiment(tmp_path, tiny_model)
    space = Space(context.method, {"finetune_learning_rate": Categorical((1e-4, 3e-4))}, fixed=SMALL)
    options = SweepOptions(
        "s", context.method, space, experiment, tmp_path, trials=8, baseline_trials=3, scheduler="none"
    )
    baseline, _ = baseline_search(options, context)
    assert baseline is not None
    distil, finetune = plan.chain()
    forecast = Forecast(options, context, workspace, baseline=baseline)
    forecast.models = 0
    each = plan.examples_in_all
    rest = f"8 trials ({finetune.examples_seen} examples each), 3 trials of the MSE baseline"
    rest = f"{rest} ({each} examples each)"
    assert ahead_of_sweep(forecast) == f"To do: the stage distil, shared by all trials, {rest}, final test."
    trained(workspace, distil, seconds=1.0)
    trained(workspace, dataclasses.replace(finetune, seed=7), seconds=60.0)
    forecast = Forecast(options, context, workspace, slots=2, baseline=baseline)
    forecast.models = 0
    parts = forecast.parts()
    assert parts is not None and parts["search"] == pytest.approx((8 * 60 + 3 * 61) / 2, abs=61)
    assert ahead_of_sweep(forecast).startswith(f"To do: {rest}, final test; about 6:"), "two at once"
    forecast.refits, forecast.method.ended, forecast.models = [plan, plan], 2, 5
    said = ahead_of_sweep(forecast)
    assert f"6 of 8 trials ({finetune.examples_seen} examples each), 3 trials of the" in said
    assert f"2 long runs of the best trials ({each} examples each), final test" in said
    parts = forecast.parts()
    assert parts is not None and parts["test and export"] > 10
    forecast.method.ended = 8
    assert ahead_of_sweep(forecast).startswith("To do: 3 trials of the MSE baseline")
    forecast.searches[1].ended = 3
    assert ahead_of_sweep(forecast).startswith("To do: all 8 trials have finished;")


def test_a_delivered_sweep_tells_how_long_the_next_test_takes(workspace: Workspace) -> None:
    assert seconds_per_model(workspace) == 0.0
    clock = JobClock()
    clock.add(DELIVERY, 50.0)
    keep_seconds(workspace.root / "sweeps" / "s", clock, models=5)
    assert seconds_per_model(workspace) == 10.0
    assert seconds_of_parts(Remaining(models=4), {}, model_s=10.0) == {
        SEARCH: 0.0,
        REFITS: 0.0,
        DELIVERY: 40.0,
    }
