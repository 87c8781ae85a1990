import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from rows import each_row

from stillhouse.reports import importances
from stillhouse.reports.plots import write_figures
from stillhouse.reports.sweep_tables import ranking_cells
from stillhouse.reports.trials import front, ranked, second_name, short
from stillhouse.search.records import TrialRecord, best_record

QUALITY = "docsearch_cosine_mrr@10"


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals take long to compute, and are examined in test_importances.py."""
    monkeypatch.setattr(importances, "RESAMPLES", 4)
    monkeypatch.setattr(importances, "FEWEST_RESAMPLES", 4)


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
    """Return trials in which the learning rate is decisive and the temperature hardly matters."""
    rates, temperatures = (1e-5, 1e-4, 1e-3), (0.05, 0.1)
    return [
        record(i, 0.3 + 0.1 * (i % 3) + 0.001 * (i % 2), rate=rates[i % 3], temperature=temperatures[i % 2])
        for i in range(count)
    ]


@each_row(
    ("value", "text"),
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
def test_values_are_printed_compactly(value: object, text: str) -> None:
    assert short(value) == text


def study_of(path: Path, records: list[TrialRecord], **more: Any) -> Path:
    """Write trials as an Optuna study, as a sweep would."""
    kinds: dict[str, Any] = {
        "rate": optuna.distributions.FloatDistribution(1e-10, 1.0, log=True),
        "temperature": optuna.distributions.CategoricalDistribution([0.05, 0.1]),
        "layers": optuna.distributions.CategoricalDistribution(["last", "first"]),
        **more,
    }
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    directions = ["maximize", "minimize"][: max([1, *(len(record.values or ()) for record in records)])]
    study = optuna.create_study(storage=f"sqlite:///{path}", directions=directions)
    for each in records:
        complete = each.state == "COMPLETE"
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState[each.state],
                params=dict(each.hyper_parameters),
                distributions={name: kinds[name] for name in each.hyper_parameters},
                intermediate_values=dict(each.curve),
                values=list(each.values or ()) if complete else None,
            )
        )
    return path


def shown(page: Path) -> dict[str, dict[str, Any]]:
    """Return Plotly's figures in a page, by name."""
    found = re.findall(
        r'<script type="application/json" class="figure" data-for="([\w-]+)">(.*?)</script>', page.read_text()
    )
    return {name: json.loads(text) for name, text in found}


def test_importances_rank_the_decisive_parameter_first(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study.db", trials(12))
    folder = write_figures(tmp_path / "figures", trials(12), QUALITY, study=study)
    (bars,) = shown(folder / "sweep.html")["importances"]["data"]
    shares = dict(zip(bars["y"], bars["x"], strict=True))
    assert list(shares)[-1] == "rate", "the largest share is at the top"
    assert shares["rate"] > 0.9
    assert sum(shares.values()) == pytest.approx(1.0)


@each_row(
    ("records", "why"),
    [
        ([], "there are 0"),
        ([record(0, 0.5, rate=1e-4), record(1, 0.4, "PRUNED", rate=1e-5)], "there are 1"),
        ([record(0, 0.5, rate=1e-4), record(1, 0.4, rate=1e-4)], "that differs"),
        ([record(0, 0.5, rate=1e-4), record(1, 0.5, rate=1e-5)], "all of them are equal"),
    ],
)
def test_the_page_explains_missing_importances(records: list[TrialRecord], why: str, tmp_path: Path) -> None:
    study = study_of(tmp_path / "study.db", records)
    page = write_figures(tmp_path / "figures", records, QUALITY, study=study) / "sweep.html"
    assert re.search(f"<p>importances need .*{why}.*</p>", page.read_text())
    assert "importances" not in shown(page)


def test_front_keeps_undominated_trials() -> None:
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
    best = best_record([record(0, 0.5), record(1, 0.9, "PRUNED"), record(2, math.nan), record(3, 0.6)])
    assert best is not None and best.number == 3
    assert best_record([record(0, 0.5, "PRUNED")]) is None


def test_trials_are_ranked_by_the_selecting_figure() -> None:
    records = [
        record(0, 0.3),
        record(1, 0.9, "PRUNED"),
        record(2, None, "FAIL"),
        record(3, 0.5),
        record(4, math.nan),
        record(5, 0.95, "PRUNED"),
    ]
    assert [each.number for each in ranked(records)] == [3, 0, 4, 5, 1, 2]
    header, cells = ranking_cells(ranked(records[:4]), QUALITY, {QUALITY: 1.0})
    assert header == ["trial", "docsearch mrr@10", "kept", "examples", "seconds", "ended"]
    assert [row[:3] for row in cells[:2]] == [["*3", "0.5000", "50.0 %"], ["0", "0.3000", "30.0 %"]]
    assert cells[3][-1] == "failed: loss is NaN"


def test_all_figures_are_written(tmp_path: Path) -> None:
    records = [record(i, 0.3 + 0.02 * i, second=90.0 - i, rate=0.5**i, layers="last") for i in range(10)]
    records += [
        record(10, 0.2, "PRUNED", rate=0.5, layers="first"),
        record(11, None, "FAIL", rate=0.1, layers="last"),
    ]
    study = study_of(tmp_path / "study.db", records)
    tested = {who: {"metrics": {QUALITY: 0.4}, "cost": {"megabytes": 1.5}} for who in ("teacher", "student")}
    folder = write_figures(
        tmp_path / "figures",
        records,
        QUALITY,
        study=study,
        teacher={QUALITY: 0.6},
        tested=tested,
        title="a <sweep>",
    )
    assert [path.name for path in folder.iterdir()] == ["sweep.html"]
    drawn = ["learning-curves", "pareto-front", "history", "importances", "parallel-coordinates", "slices"]
    assert list(shown(folder / "sweep.html")) == drawn
    page = (folder / "sweep.html").read_text()
    assert "a &lt;sweep&gt;" in page and "a <sweep>" not in page
    assert "<script src=" not in page and "Plotly.newPlot" in page, "the page is one file"
    assert "best student" in page and page.index("*9") < page.index('<td class="text">0</td>')


def test_learning_curves_show_the_best_trial_and_the_teacher(tmp_path: Path) -> None:
    records = [*trials(3), record(3, 0.2, "PRUNED", rate=1e-5, temperature=0.1)]
    study = study_of(tmp_path / "study.db", records)
    folder = write_figures(tmp_path, records, QUALITY, study=study, teacher={QUALITY: 0.75})
    figure = shown(folder / "sweep.html")["learning-curves"]
    named = [(curve["name"], curve["showlegend"], curve["y"][-1]) for curve in figure["data"]]
    assert named == [
        ("finished", True, 0.3),
        ("finished", False, pytest.approx(0.401)),
        ("best student: trial 2", True, 0.5),
        ("stopped early", True, 0.2),
    ]
    assert figure["layout"]["shapes"][0]["y0"] == 0.75
    assert figure["layout"]["yaxis"]["title"]["text"] == "docsearch mrr@10 (dev)"


def test_the_refit_has_a_curve_and_a_row(tmp_path: Path) -> None:
    records = [*trials(3), record(3, 0.2, "PRUNED", rate=1e-5, temperature=0.1)]
    again = replace(records[2], refit=True, curve={1024: 0.5, 9000: 0.7, 9999: 0.6}, values=(0.7,))
    study = study_of(tmp_path / "study.db", records)
    page = write_figures(
        tmp_path, [*records, again], QUALITY, study=study, facts=["teacher T"], links={"export": "../export"}
    )
    page = page / "sweep.html"
    curves = {curve["name"]: curve for curve in shown(page)["learning-curves"]["data"]}
    best = curves["best student: refit of trial 2"]
    assert (best["x"], best["y"], best["line"]["width"]) == ([1024, 9000, 9999], [0.5, 0.7, 0.6], 3)
    assert curves["trial 2, which was refitted"]["y"][-1] == 0.5
    rows = re.findall(r'<tr( class="\w+")?><td[^>]*>([^<]+)</td>', page.read_text())
    assert rows == [
        (' class="best"', "*refit of 2"),
        ("", "2"),
        ("", "1"),
        ("", "0"),
        (' class="dim"', "3"),
    ]
    below = r'<p>teacher T · searched until \d{4}-.* · <a href="../export">export</a></p>'
    assert re.search(below, page.read_text())


def test_no_more_than_four_panels_stand_beside_each_other(tmp_path: Path) -> None:
    """More of them would lie outside of a screen; 1e-4 is not written as 100µ."""
    records = [record(i, 0.1 * i, **{f"p{j}": 1e-5 * 3**i + 1e-7 * j for j in range(6)}) for i in range(4)]
    kinds = {f"p{j}": optuna.distributions.FloatDistribution(1e-10, 1.0, log=True) for j in range(6)}
    study = study_of(tmp_path / "study.db", records, **kinds)
    drawn = shown(write_figures(tmp_path, records, QUALITY, study=study) / "sweep.html")
    panels = {name: len(each["data"]) for name, each in drawn.items() if name.startswith("slices")}
    assert panels == {"slices": 4, "slices-2": 2}
    for name in panels:
        assert "width" not in drawn[name]["layout"]
        assert drawn[name]["layout"]["xaxis"]["exponentformat"] == "e"


def test_the_page_is_deterministic(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study.db", trials(4))
    pages = [write_figures(tmp_path / name, trials(4), QUALITY, study=study) / "sweep.html" for name in "ab"]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_sweep_without_a_finished_trial_is_drawn_and_explained(tmp_path: Path) -> None:
    records = [record(0, None, "FAIL", rate=0.1)]
    folder = write_figures(tmp_path / "f", records, QUALITY, study=study_of(tmp_path / "s.db", records))
    assert list(shown(folder / "sweep.html")) == ["learning-curves"]
    assert "importances need at least two finished trials" in (folder / "sweep.html").read_text()
