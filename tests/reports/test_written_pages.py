"""Every page that the package writes, parsed: so many tables, of so many rows and columns."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from parsed_pages import (
    csv_table,
    html_tables,
    markdown_tables,
    shape,
)
from rows import each_row
from test_comparison import table as compared  # type: ignore[import-not-found]
from test_figures import study_of, trials  # type: ignore[import-not-found]
from test_model_card import CARD, FORMS  # type: ignore[import-not-found]
from test_report_tables import QUALITY, TESTED, TRIALS  # type: ignore[import-not-found]

from stillhouse.methods import known_methods
from stillhouse.reports.comparison_tables import as_csv, as_markdown
from stillhouse.reports.importances import Importance, Importances
from stillhouse.reports.model_card import model_card
from stillhouse.reports.plots import write_figures
from stillhouse.reports.preset_table import presets_page
from stillhouse.reports.reuse import Reuse, reuse_table_markdown
from stillhouse.reports.sweep_tables import comparison_table_markdown, sweep_description, trial_table_markdown
from stillhouse.sweeps.findings import Findings

ROOT = Path(__file__).resolve().parents[2]
EVIL = "a|b\n--- <b> `c` :-- |"
"""What a user may call anything."""


@each_row("form", FORMS)
def test_the_tables_of_a_card(form: str) -> None:
    card = replace(CARD, hyper_parameters={EVIL: EVIL, "temperature": 0.1})
    about, figures, sizes, values, facts = markdown_tables(model_card(card, FORMS[form]))
    assert shape(about) == (5, 2) and shape(figures) == (2, 4) and shape(sizes) == (3, 4)
    assert shape(values) == (2, 2) and shape(facts) == (2, 2)
    assert figures[1] == ["docsearch_cosine_mrr@10", "1,211 queries, test split", "0.6124", "0.5874"]
    assert values[1][0] == "a|b --- <b> c :-- |", "a name stays in its cell, and is no markup"


WRITTEN: dict[str, tuple[Callable[[], str], list[tuple[int, int]]]] = {
    "trials": (lambda: trial_table_markdown(TRIALS, QUALITY, {QUALITY: 0.6}), [(5, 12)]),
    "comparison": (lambda: comparison_table_markdown(TESTED), [(4, 10)]),
    "description": (lambda: sweep_description(TRIALS, QUALITY, TESTED, "m"), [(4, 10), (5, 7)]),
    "reuse": (lambda: reuse_table_markdown([Reuse("distil", 1, 2, 3.0, 4.0)]), [(1, 5)]),
    "compare": (lambda: as_markdown(compared(), EVIL), [(3, 8)]),
}


@each_row("name", WRITTEN)
def test_the_tables_of_a_report(name: str) -> None:
    write, shapes = WRITTEN[name]
    assert [shape(table) for table in markdown_tables(write())] == shapes


def test_the_tables_of_a_report_on_findings() -> None:
    found = Importances(30, (Importance(EVIL, 0.9, 0.1, 1.0),))
    tables = markdown_tables(Findings((), (), found).markdown())
    assert [table[1][0] for table in tables] == ["a|b --- <b> c :-- |"]


def test_the_page_of_presets_has_a_table_for_every_method() -> None:
    tables = markdown_tables(presets_page())
    assert len(tables) == len(known_methods())
    assert all(rows >= 3 and columns >= 3 for rows, columns in map(shape, tables))
    assert "\n" + presets_page().splitlines()[0] in "\n" + (ROOT / "docs/presets.md").read_text()


def test_the_pages_of_faults_and_of_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("faults", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    page, injection = importlib.import_module("page"), importlib.import_module("injection")
    results = [
        injection.Result(f"a | {at}", "embed", "finished", at, "", (0,), files=2, stall=0.25) for at in (1, 2)
    ]
    page.write_page(tmp_path / "p.md", results, seed=7, listed=5, seconds=60.0, limits="9 s", notice="5 s")
    assert list(map(shape, markdown_tables((tmp_path / "p.md").read_text()))) == [(2, 7)]
    stage = {"stage": "distil", "steps": 3, "seconds": 2.0, "reused": False}
    result = {
        "file": "a_table1",
        "variant": "x|y",
        "seconds": 1.0,
        "core_seconds": 1.0,
        "exit_code": 0,
        "output": [],
        "stages": [stage],
        "dev": {"mrr@10": 0.5},
        "suites": {},
    }
    papers: Any = importlib.import_module("paper_tables")
    assert list(map(shape, markdown_tables(papers.page([result, result])))) == [(2, 7)]
    for name in ("page", "injection", "paper_tables"):
        sys.modules.pop(name, None)


def test_the_page_of_a_sweep(tmp_path: Path) -> None:
    records = [*trials(12), replace(trials(3)[2], number=2, refit=True, values=(0.9,))]
    study = study_of(tmp_path / "study.db", trials(12))
    folder = write_figures(tmp_path, records, QUALITY, study=study, tested=TESTED, title=EVIL)
    tables = html_tables((folder / "sweep.html").read_text())
    assert [shape(table) for table in tables] == [(4, 10), (13, 7), (2, 4)]
    assert tables[1][1][0] == "*refit of 2"


def test_a_comparison_as_csv() -> None:
    header, *rows = csv_table(as_csv(compared()))
    assert shape([header, *rows]) == (3, 13) and rows[1][header.index("text")] == "a|b"
