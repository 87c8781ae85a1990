"""Importances with intervals: what matters is told from what does not, and too few trials are said to be."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from rows import each_row
from test_figures import QUALITY, record, shown, study_of  # type: ignore[import-not-found]

from stillhouse.reports.importances import (
    FEWEST_RESAMPLES,
    Importance,
    Importances,
    error_bars,
    importance_cells,
    importance_note,
    importances,
    needed_trials,
)
from stillhouse.reports.plots import write_figures


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few as for a study of many trials: they take long."""
    monkeypatch.setattr("stillhouse.reports.importances.RESAMPLES", FEWEST_RESAMPLES)


def study(trials: int, names: int, *, decisive: bool, seed: int = 0) -> Any:
    """A study of uniform points in which the first hyper-parameter decides the quality, or none does."""
    random = np.random.default_rng(seed)
    points = random.random((trials, names))
    noise = random.normal(size=trials)
    qualities = points[:, 0] + 0.1 * noise if decisive else noise
    made = optuna.create_study(direction="maximize")
    unit = optuna.distributions.FloatDistribution(0, 1)
    columns = [f"x{place}" for place in range(names)]
    made.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(zip(columns, map(float, point), strict=True)),
                distributions=dict.fromkeys(columns, unit),
                value=float(quality),
            )
            for point, quality in zip(points, qualities, strict=True)
        ]
    )
    return made


def test_one_decisive_hyper_parameter_is_told_from_two_that_do_nothing() -> None:
    found = importances(study(needed_trials(3), 3, decisive=True))
    first, *others = found.shares
    assert first.name == "x0" and first.share > 0.7 and found.clear(first)
    for other in others:
        assert other.low < 0.05 and other.share < found.equal_share and not found.clear(other)
    assert sum(each.share for each in found.shares) == pytest.approx(1.0)
    assert all(each.low <= each.share <= each.high for each in found.shares)


def test_noise_is_not_told_to_be_more() -> None:
    """The largest of six shares of pure noise is far above the mean share, but its interval is not."""
    found = importances(study(needed_trials(6), 6, decisive=False))
    assert found.shares[0].share > 1.3 * found.equal_share
    assert not any(found.clear(each) for each in found.shares)
    assert all(row[-1] == "not told from noise" for row in importance_cells(found)[1])


def test_the_same_study_gives_the_same_intervals() -> None:
    assert importances(study(10, 2, decisive=True)) == importances(study(10, 2, decisive=True))


@each_row(("names", "needed"), [(1, 10), (3, 10), (4, 12), (6, 18), (8, 24)])
def test_too_few_trials_are_said_to_be(names: int, needed: int) -> None:
    assert needed_trials(names) == needed
    found = importances(study(needed - 1, names, decisive=True))
    assert not found.shares and found.trials == needed - 1
    assert (
        f"{names} hyper-parameters need {needed} finished trials, but there are {needed - 1}" in found.missing
    )
    assert importance_note(found).endswith("with 1 more trial.")
    few = importances(study(needed - 4, names, decisive=True))
    assert few.missing.endswith("4 more trials")


def test_error_bars_reach_to_the_ends_of_the_interval() -> None:
    found = Importances(20, (Importance("a", 0.6, 0.5, 0.9), Importance("b", 0.4, 0.1, 0.45)))
    below, above = error_bars(found, ["b", "a"])
    assert below == pytest.approx([0.3, 0.1]) and above == pytest.approx([0.05, 0.3])
    header, rows = importance_cells(found)
    assert header[:3] == ["hyper-parameter", "share of the variance", "95 % interval"]
    assert [cell.replace("\N{EN DASH}", "-") for cell in rows[1]] == [
        "b",
        "40 %",
        "10-45 %",
        "not told from noise",
    ]
    assert rows[0][-1] == "not told from noise", "an interval that only reaches the mean share is not clear"


def test_the_page_draws_the_intervals(tmp_path: Path) -> None:
    records = [record(i, 0.3 + 0.1 * (i % 3), rate=10.0 ** -(i % 3), temperature=0.05) for i in range(11)]
    records.append(record(11, 0.2, rate=0.1, temperature=0.1))
    made = study_of(tmp_path / "study.db", records)
    shares = Importances(12, (Importance("rate", 0.8, 0.6, 0.95), Importance("temperature", 0.2, 0.05, 0.4)))
    page = write_figures(tmp_path / "f", records, QUALITY, study=made, shares=shares) / "sweep.html"
    figure = shown(page)["importances"]
    (bars,) = figure["data"]
    assert bars["y"] == ["temperature", "rate"] and bars["x"] == pytest.approx([0.2, 0.8])
    assert bars["error_x"]["array"] == pytest.approx([0.2, 0.15])
    assert bars["error_x"]["arrayminus"] == pytest.approx([0.15, 0.2])
    assert figure["layout"]["shapes"][0]["x0"] == 0.5, "the line of pure noise"
    assert json.dumps("rate") in json.dumps(figure)
    text = page.read_text()
    assert re.search(r"<td[^>]*>60.95 %</td>", text) and "fANOVA over 12 finished trials" in text


def test_the_page_says_that_trials_are_too_few(tmp_path: Path) -> None:
    records = [record(i, 0.3 + 0.1 * i, rate=10.0**-i, temperature=0.05) for i in range(5)]
    page = write_figures(tmp_path / "f", records, QUALITY, study=study_of(tmp_path / "s.db", records))
    text = (page / "sweep.html").read_text()
    assert "need 10 finished trials, but there are 5" in text and "5 more trials" in text
    assert 'id="importances"' not in text
