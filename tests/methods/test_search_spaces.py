"""The search spaces shipped with the methods: published values and existing names."""

from pathlib import Path

import pytest

from stillhouse.methods import load_method
from stillhouse.search.space import check, load_space, sections_of

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "search_spaces").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.stem))
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
