"""What a sweep's baseline is called, and how it is trained, where a method has one of its own."""

import pytest

from stillhouse.methods import known_methods, load_method
from stillhouse.reports.entries import entries
from stillhouse.reports.tables import comparison_table
from stillhouse.sweeps.baseline import LEARNING_RATES, baseline_name, rates_of
from stillhouse.tracking import MSE_BASELINE
from stillhouse.tracking.reading import Run

OWN = {
    "retrieval_kd": ("no teacher", (3e-4, 1e-3, 3e-3)),
    "rerank_kd": ("InfoNCE alone", (3e-5, 1e-4, 3e-4)),
}


@pytest.mark.parametrize("method", known_methods())
def test_every_baseline_has_a_name_and_rates(method: str) -> None:
    assert hasattr(load_method(method), "BASELINE") == (method in OWN)
    assert (baseline_name(method), rates_of(method)) == OWN.get(method, (MSE_BASELINE, LEARNING_RATES))


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
