"""What is said before a sweep or a training: what will be done, how much, and about how long."""

import dataclasses
import sqlite3
from pathlib import Path

import pytest
from small_experiment import quick_experiment  # type: ignore[import-not-found]

from stillhouse.core.artifacts import MANIFEST, Workspace, write_manifest
from stillhouse.core.identity import canonical
from stillhouse.experiments.budget import Budget, Refit
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Categorical, Space
from stillhouse.search.study_copies import STUDY
from stillhouse.search.trial import Context
from stillhouse.sweeps.ahead import ahead_of_sweep, ahead_of_training
from stillhouse.sweeps.baseline import baseline_choices
from stillhouse.training.estimate import seconds_of
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
    assert seconds_of([distil], workspace) is None
    trained(workspace, distil, seconds=32.0)
    longer = dataclasses.replace(distil, budget=10 * distil.budget, seed=7)
    assert seconds_of([longer], workspace) == pytest.approx(320.0)
    assert seconds_of([longer, finetune], workspace) is None, "examples of several texts take longer"
    (workspace.path(distil) / MANIFEST).write_text("no JSON")
    assert seconds_of([longer], workspace) is None


def test_a_training_says_its_stages_and_skips_what_is_finished(plan: Stage, workspace: Workspace) -> None:
    distil, finetune = plan.chain()
    both = f"distil, {distil.examples_seen} examples; finetune, {finetune.examples_seen} examples"
    assert ahead_of_training([plan], workspace) == f"ahead: 2 stages: {both}"
    trained(workspace, distil, seconds=32.0)
    rest = f"ahead: stage finetune, {finetune.examples_seen} examples (distil is finished)"
    assert ahead_of_training([plan], workspace) == rest
    other = dataclasses.replace(finetune, seed=7)
    trained(workspace, other, seconds=600.0)
    assert (
        ahead_of_training([plan], workspace)
        == f"{rest}; about 10 min of training without evaluations, as similar stages took here"
    )
    trained(workspace, finetune, seconds=1.0)
    assert ahead_of_training([plan], workspace) == "ahead: nothing, every stage is finished"


def test_a_sweep_says_its_shared_stages_baselines_trials_refits_and_test(
    plan: Stage, context: Context, workspace: Workspace, tmp_path: Path, tiny_model: Path
) -> None:
    experiment = quick_experiment(tmp_path, tiny_model)
    space = Space(context.method, {"finetune_learning_rate": Categorical((1e-4, 3e-4))}, fixed=SMALL)
    options = SweepOptions("s", context.method, space, experiment, tmp_path, trials=8)
    study = tmp_path / STUDY
    distil, finetune = plan.chain()
    rest = (
        f"3 students of the MSE baseline, 8 trials of {finetune.examples_seen} examples and the test of the "
        "best student"
    )
    said = ahead_of_sweep(options, context, plan, study, 1, None)
    assert said == f"ahead: the stage distil, which all trials share, {rest}"
    trained(workspace, distil, seconds=30.0)
    assert ahead_of_sweep(options, context, plan, study, 1, None) == f"ahead: {rest}"
    trained(workspace, finetune, seconds=60.0)
    assert ahead_of_sweep(options, context, plan, study, 2, None) == (
        f"ahead: {rest}; about 6 min of training without evaluations, as similar stages took here"
    ), "3 + 8 students of a minute each, two at once"

    with sqlite3.connect(study) as database:
        database.execute("CREATE TABLE trials (number INTEGER, state TEXT)")
        database.executemany(
            "INSERT INTO trials VALUES (?, ?)", [(0, "COMPLETE"), (1, "FAIL"), (2, "RUNNING")]
        )
    refits = Budget(distil=64, refit=Refit(top=2, distil=640, finetune=320))
    longer = dataclasses.replace(options, experiment=dataclasses.replace(experiment, budget=refits))
    said = ahead_of_sweep(longer, context, plan, study, 1, plan)
    assert f"6 of 8 trials of {finetune.examples_seen} examples, 2 refits of {plan.examples_in_all}" in said

    of_baseline, choices = baseline_choices(context, plan, SMALL)
    for index, left in enumerate(("2 students of the MSE baseline", "1 student of the MSE baseline", "")):
        trained(workspace, of_baseline.plan(choices[index]), seconds=60.0)
        said = ahead_of_sweep(options, context, plan, study, 1, None)
        assert said.startswith(f"ahead: {left}{', ' if left else ''}6 of 8 trials"), said

    with sqlite3.connect(study) as database:
        database.execute("UPDATE trials SET state = 'PRUNED'")
        database.executemany("INSERT INTO trials VALUES (?, ?)", [(n, "COMPLETE") for n in range(3, 8)])
    said = ahead_of_sweep(options, context, plan, study, 1, None)
    assert said == "ahead: all 8 trials have ended, so only what is not finished of the rest"
