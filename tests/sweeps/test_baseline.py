"""The baseline of a sweep: the same recipe with another loss, by a search of equal means."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.methods import known_methods, load_method, with_defaults
from stillhouse.reports.entries import entries
from stillhouse.reports.sweep_tables import comparison_table
from stillhouse.search.options import SweepOptions
from stillhouse.search.shared_stages import first_point
from stillhouse.search.space import Categorical, Float, Space, check, load_space
from stillhouse.search.trial import Context
from stillhouse.sweeps.baseline import BaselineSearch, as_baseline, baseline_of, baseline_search
from stillhouse.sweeps.checks import default_space
from stillhouse.teachers.weights import resolve_model
from stillhouse.tracking import MSE_BASELINE
from stillhouse.tracking.reading import Run
from stillhouse.training.where import Where
from stillhouse.values.stage import Stage

ITSELF = {"mse", "simcse"}
ROOT = Path(__file__).resolve().parents[2]


def sweep_of(method: str, model: Path, **more: Any) -> tuple[SweepOptions, Context]:
    """A sweep of the method's own space, at its default budgets; its data has all kinds."""
    module = load_method(method)
    pairs = Pairs("pairs.jsonl", count=0, negatives=2)
    given = Experiment(teacher=str(model), student=TransformerChoice(str(model)), data=pairs)
    experiment = with_defaults(module, given)
    setting = experiment.of(resolve_model(str(model))).sketch()
    task = LabelledTask(name="sst2", root="nowhere", wordnet="nowhere")
    kinds: list[Any] = [Parallel("de=x"), task, WordVectors(), Claims("nowhere")]
    for kind in kinds:
        setting = setting.having(type(kind), kind.reader.sketch(experiment))
    context = Context(method, "paper", setting, "nowhere", Where(device="cpu"), setting.dev.select)
    space = load_space(default_space(method)).without("distil_epochs", "finetune_epochs", "epochs", "layers")
    space = more.pop("space", check(space, module.HyperParameters))
    return SweepOptions("s", method, space, experiment, Path("nowhere"), **more), context


def labelled(plan: Stage, context: Context) -> set[str]:
    """The tables that a plan reads beside the unlabelled sentences."""
    tables = {table for part in plan.chain() for table in part.examples.columns.values()}
    return {table.fingerprint for table in tables if table != context.setting[Sentences].store.texts}


@pytest.mark.parametrize("method", sorted(set(known_methods()) - ITSELF))
def test_every_baseline_reads_the_same_labels_and_as_many_examples(method: str, tiny_model: Path) -> None:
    options, context = sweep_of(method, tiny_model)
    found, missing = baseline_search(options, context)
    assert found is not None, missing
    plan = context.plan(first_point(options.space))
    other = found.context.plan(first_point(found.options.space))
    assert labelled(other, context) == labelled(plan, context)
    examples = [sum(part.budget for part in each.chain()) for each in (plan, other)]
    assert examples[1] >= examples[0] and examples[1] == pytest.approx(examples[0], rel=0.01)
    assert other.fingerprint != plan.fingerprint and other.dev == plan.dev
    varied = [
        {**first_point(found.options.space), name: 0.5}
        for name in found.options.space.domains
        if name.endswith("learning_rate")
    ]
    rates = [part.optimizer.learning_rate for each in varied for part in found.context.plan(each).chain()]
    assert rates.count(0.5) >= len(list(other.chain())), "every stage has a rate that is searched"
    assert found.options.trials == min(options.trials, found.options.space.points or options.trials)


@pytest.mark.parametrize("method", sorted(ITSELF))
def test_a_method_that_is_a_baseline_itself_has_none(method: str, tiny_model: Path) -> None:
    assert baseline_of(method) is None
    assert baseline_search(*sweep_of(method, tiny_model)) == (None, f"No baseline: {method} is one itself.")


def searched(space: Space, model: Path, **more: Any) -> BaselineSearch:
    found, missing = baseline_search(*sweep_of("ibkd", model, space=space, **more))
    assert found is not None, missing
    return found


def test_the_baseline_searches_what_both_methods_have(tiny_model: Path) -> None:
    """Rates of both stages in any case, batches where the sweep does; the rest is as in the sweep."""
    domains: dict[str, Any] = {
        "distil_learning_rate": Categorical((1e-4, 1e-3)),
        "distil_batch_size": Categorical((64, 128)),
        "beta1": Categorical((0.1, 1.0)),
    }
    first = {"distil_learning_rate": 1e-3, "distil_batch_size": 64, "beta1": 1.0}
    fixed = {"finetune_batch_size": 32, "warmup": 0.0}
    found = searched(Space("ibkd", domains, fixed, first), tiny_model, trials=30)
    space = found.options.space
    assert space.domains["learning_rate"] == domains["distil_learning_rate"]
    assert space.domains["batch_size"] == domains["distil_batch_size"]
    assert set(space.domains) == {"learning_rate", "batch_size", "finetune_learning_rate"}
    assert space.first == {"learning_rate": 1e-3, "batch_size": 64, "finetune_learning_rate": 1e-4}
    assert (space.fixed["finetune_batch_size"], space.fixed["warmup"]) == (32, 0.0)
    assert space.fixed["finetune_share_negatives"] is False, "as in eq. 10 of IBKD"
    assert found.options.trials == 12, "the space has no more points"
    ranges = searched(Space("ibkd", {"gamma": Float(0.1, 1.0)}), tiny_model, sampler="qmc")
    assert all(isinstance(values, Float) for values in ranges.options.space.domains.values())


def test_the_number_of_trials(tiny_model: Path) -> None:
    space = Space("ibkd", {"gamma": Categorical((0.1, 1.0)), "distil_learning_rate": Float(1e-5, 1e-3)})
    assert searched(space, tiny_model, trials=20).options.trials == 20
    assert searched(space, tiny_model, trials=20, baseline_trials=3).options.trials == 3
    none = baseline_search(*sweep_of("ibkd", tiny_model, space=space, baseline_trials=0))
    assert none == (None, "No baseline: the MSE baseline was left out (--baseline-trials 0).")


def test_data_without_what_the_baseline_reads_has_none(tiny_model: Path) -> None:
    options, context = sweep_of("sra", tiny_model)
    bare = dataclasses.replace(context, setting=context.setting.having(LabelledTask, None))
    assert as_baseline(bare, first_point(options.space)) is None


def test_a_kept_map_stays(tiny_model: Path) -> None:
    """A student in the teacher's space is compared with another one there."""
    options, context = sweep_of("leaf", tiny_model)
    found, _ = baseline_search(options, context)
    assert found is not None
    plan = found.context.plan(first_point(found.options.space))
    assert plan.student.kwargs["projection"] == context.setting.teacher_dim


def swept(**parameters: str) -> Run:
    """The run of a sweep whose baseline was tested."""
    figures = {"test/baseline/mrr_at_10": 0.4}
    return Run("1", "a sweep", "e", "s", "", "sweep", "", "finished", 1.0, parameters, figures)


def test_comparisons_name_what_the_run_says() -> None:
    assert [row.name for row in entries([swept(baseline="InfoNCE alone")])] == ["InfoNCE alone"]
    # Runs of earlier versions do not say.
    assert [row.name for row in entries([swept()])] == [MSE_BASELINE]


def test_the_final_table_takes_the_title() -> None:
    table = comparison_table({"baseline": {"metrics": {"mrr_at_10": 0.4}, "title": "InfoNCE alone"}})
    assert "InfoNCE alone" in table and MSE_BASELINE not in table
