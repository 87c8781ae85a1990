"""The search spaces shipped with the methods: published values and existing names."""

from pathlib import Path

import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.methods import load_method
from stillhouse.search.space import Space, check, load_space, sections_of
from stillhouse.sweeps.checks import search_space

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "search_spaces").glob("*.yaml"))


@each_row("path", SHIPPED)
def test_searched_and_first_values_are_hyper_parameters(path: Path) -> None:
    sections = [name for name in ("space", "continuous") if name in sections_of(path)]
    for section in sections:
        space = load_space(path, space=section)
        method = load_method(space.method)
        checked = check(space, method.HyperParameters)
        method.HyperParameters(**checked.fixed, **(checked.first or {}))
    assert sections


def test_ibkd_is_table_5_of_the_paper() -> None:
    path = ROOT / "search_spaces" / "ibkd.yaml"
    space = load_space(path)
    assert space.grid_size() == 135 * 135 * 64
    assert space.without("distil_epochs", "finetune_epochs").grid_size() == 45 * 45 * 64
    assert space.first == {
        "distil_learning_rate": 1e-4,
        "distil_batch_size": 256,
        "distil_epochs": 10,
        "distil_temperature": 0.1,
        "gamma": 0.5,
        "beta1": 1.0,
        "beta2": 0.5,
        "finetune_learning_rate": 3e-5,
        "finetune_batch_size": 256,
        "finetune_epochs": 3,
        "finetune_temperature": 0.05,
    }
    assert space.fixed == {}
    assert load_space(path, space="continuous").has_numeric


def test_the_main_job_searches_every_dimension_and_value_of_the_paper() -> None:
    paper = load_space(ROOT / "search_spaces" / "ibkd.yaml")
    job = search_space(load_method("ibkd"), ROOT / "jobs" / "sweep_ibkd.yaml", scheduler="none")
    assert job.section == "space" and job.first == {**(paper.first or {}), "keep_projection": False}
    for name, values in paper.domains.items():
        for value in values.choices:  # type: ignore[union-attr]
            assert job.domains[name].holds(value), (name, value)


@each_row("sampler", ["tpe", "random", "grid"])
def test_samplers_search_the_documented_grid(sampler: str) -> None:
    assert searched_by(sampler).section == "space"


def test_a_sampler_that_needs_ranges_searches_those() -> None:
    assert searched_by("qmc").section == "continuous"
    with pytest.raises(BadInput, match="numeric range"):
        searched_by("qmc", section="space")
    assert searched_by("tpe", section="continuous").section == "continuous"


def searched_by(sampler: str, section: str = "") -> Space:
    return search_space(
        load_method("mse"), ROOT / "search_spaces" / "mse.yaml", sampler=sampler, section=section
    )
