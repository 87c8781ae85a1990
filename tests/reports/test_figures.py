import math
import re
import struct
from pathlib import Path
from typing import Any

import optuna
import pytest

from stillhouse.reports.figures import write_figures
from stillhouse.reports.figures_data import axes, best_of, front, importances, second_name, short
from stillhouse.search.records import TrialRecord

QUALITY = "docsearch_cosine_mrr@10"


def record(
    number: int,
    quality: float | None,
    state: str = "COMPLETE",
    second: float | None = None,
    **hyper_parameters: Any,
) -> TrialRecord:
    values = None if quality is None else (quality,) if second is None else (quality, second)
    metrics = {} if quality is None else {QUALITY: quality}
    return TrialRecord(
        number=number,
        hyper_parameters=hyper_parameters,
        state=state,
        values=values,
        curve={} if quality is None else {1024: quality - 0.1, 2048: quality},
        reason="loss is NaN" if state == "FAIL" else None,
        seconds=10.0,
        examples=2048,
        metrics=metrics if second is None else {**metrics, "size_mb": second},
        attributes={},
    )


def trials(count: int) -> list[TrialRecord]:
    """The learning rate decides, the temperature hardly matters."""
    rates, temperatures = (1e-5, 1e-4, 1e-3), (0.05, 0.1)
    return [
        record(i, 0.3 + 0.1 * (i % 3) + 0.001 * (i % 2), rate=rates[i % 3], temperature=temperatures[i % 2])
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1e-4, "1e-4"),
        (3e-5, "3e-5"),
        (0.05, "0.05"),
        (20000, "20,000"),
        (2.0, "2"),
        (True, "True"),
        (None, "–"),
        ((0, 5), "0+5"),
        (1.25e-7, "1.25e-7"),
    ],
)
def test_values_are_short(value: object, told: str) -> None:
    assert short(value) == told


def test_importances_find_what_decides() -> None:
    shares = importances(trials(12))
    assert isinstance(shares, dict)
    assert next(iter(shares)) == "rate"
    assert shares["rate"] > 0.9
    assert sum(shares.values()) == pytest.approx(1.0)


def test_importances_of_the_study_are_those_of_its_records(tmp_path: Path) -> None:
    study = optuna.create_study(storage=f"sqlite:///{tmp_path / 'study.db'}", direction="maximize")
    spaces = {
        "rate": optuna.distributions.CategoricalDistribution([1e-5, 1e-4, 1e-3]),
        "temperature": optuna.distributions.CategoricalDistribution([0.05, 0.1]),
    }
    for told in trials(6):
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(told.hyper_parameters), distributions=spaces, values=list(told.values or ())
            )
        )
    shares = importances(trials(6), study=tmp_path / "study.db")
    assert isinstance(shares, dict)
    assert shares["rate"] > 0.8


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([], "there are 0"),
        ([record(0, 0.5, rate=1e-4), record(1, 0.4, "PRUNED", rate=1e-5)], "there are 1"),
        ([record(0, 0.5, rate=1e-4), record(1, 0.4, rate=1e-4)], "that differs"),
        ([record(0, 0.5, rate=1e-4), record(1, 0.5, rate=1e-5)], "all finished ones are equal"),
    ],
)
def test_importances_say_why_there_are_none(records: list[TrialRecord], why: str) -> None:
    told = importances(records)
    assert isinstance(told, str) and why in told


def test_front_keeps_what_no_other_beats() -> None:
    records = [
        record(0, 0.50, second=40.0),
        record(1, 0.60, second=90.0),
        record(2, 0.55, second=40.0),
        record(3, 0.52, second=60.0),
        record(4, 0.60, second=95.0),
        record(5, 0.40, second=20.0),
        record(6, 0.99, "PRUNED", second=1.0),
        record(7, None, "FAIL"),
    ]
    assert [r.number for r in front(records)] == [5, 2, 1]
    assert second_name(records) == "size (MB)"


def test_best_is_a_finished_trial() -> None:
    best = best_of([record(0, 0.5), record(1, 0.9, "PRUNED"), record(2, math.nan), record(3, 0.6)])
    assert best is not None and best.number == 3
    assert best_of([record(0, 0.5, "PRUNED")]) is None


def test_axes_list_few_values_and_measure_many() -> None:
    few = axes(
        [record(i, 0.1 * i, layers=name) for i, name in enumerate(["last", "first", "last"])], QUALITY
    )[0]
    assert (few.labels, few.places, few.listed) == (("first", "last"), (1.0, 0.0, 1.0), True)
    rates = [10.0**-power for power in range(1, 11)]
    many = axes([record(i, 0.1 * i, rate=rate) for i, rate in enumerate(rates)], QUALITY)[0]
    assert not many.listed
    assert many.places == pytest.approx([1 - i / 9 for i in range(10)])
    assert (many.labels[0], many.labels[-1]) == ("1e-10", "0.1")
    absent = axes([record(0, 0.1, rate=0.1), record(1, 0.2)], QUALITY)[0]
    assert absent.labels == ("–", "0.1")


def test_all_figures_are_written(tmp_path: Path) -> None:
    records = [record(i, 0.3 + 0.02 * i, second=90.0 - i, rate=10.0**-i, layers="last") for i in range(6)]
    records += [
        record(6, 0.2, "PRUNED", rate=0.5, layers="first"),
        record(7, None, "FAIL", rate=0.1, layers="last"),
    ]
    folder = write_figures(tmp_path / "figures", records, QUALITY, teacher=0.6, title="a <sweep>")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "sweep.html",
        "learning-curves.png",
        "importances.png",
        "parallel-coordinates.png",
        "pareto-front.png",
    }
    for picture in folder.glob("*.png"):
        data = picture.read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data.startswith(b"\x89PNG") and width > 900 and height > 300
    page = (folder / "sweep.html").read_text()
    assert "a &lt;sweep&gt;" in page and "a <sweep>" not in page
    assert len(re.findall(r'<div id="figure-\d"', page)) == 4
    assert not re.search(r'<script[^>]+src="http', page)


def test_the_page_is_the_same_for_the_same_trials(tmp_path: Path) -> None:
    pages = [write_figures(tmp_path / name, trials(4), QUALITY) / "sweep.html" for name in "ab"]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    pictures = [tmp_path / name / "learning-curves.png" for name in "ab"]
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_sweep_without_a_finished_trial_is_drawn_and_explained(tmp_path: Path) -> None:
    folder = write_figures(tmp_path, [record(0, None, "FAIL", rate=0.1)], QUALITY)
    assert {path.name for path in folder.iterdir()} == {"sweep.html", "learning-curves.png"}
    assert "importances need 2 trials" in (folder / "sweep.html").read_text()
