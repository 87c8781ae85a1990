"""Trials beside the best one on dev: planted differences, two seeds of one student, and what dev can show."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillhouse.evaluation.items import Items, Part
from stillhouse.preflight.limits import resolution
from stillhouse.search.records import TrialRecord
from stillhouse.search.trial import Context
from stillhouse.sweeps.dev_apart import against_best, apart_lines
from stillhouse.sweeps.verdict import word_of
from stillhouse.training.dev_items import items_of, keep_items
from stillhouse.values.stage import DevSuite

QUERIES = 250


def items(seed: int, shift: float = 0.0) -> Items:
    random = np.random.default_rng(seed)
    ranks = np.random.default_rng(0).integers(1, 6, QUERIES)
    return Items((Part(1 / ranks + 0.1 * random.standard_normal(QUERIES) + shift),))


@dataclasses.dataclass(frozen=True)
class Planned:
    """A context whose plans are their numbers, each in a folder of its own."""

    root: Path

    @property
    def workspace(self) -> "Planned":
        return self

    def planned(self, values: Mapping[str, Any]) -> int:
        return int(values["number"])

    def path(self, plan: int) -> Path:
        folder = self.root / str(plan)
        folder.mkdir(exist_ok=True)
        return folder


def test_planted_differences_are_told_apart_and_two_seeds_are_not(tmp_path: Path) -> None:
    context: Any = Planned(tmp_path)
    students = {0: items(1), 1: items(2), 2: items(3, shift=-0.1), 3: None}
    records = []
    for number, kept in students.items():
        figure = 0.5 if kept is None else kept.figure()
        if kept is not None:
            keep_items(context.path(number), figure, kept)
        point = {"number": number}
        records.append(TrialRecord(number, point, "COMPLETE", (figure,), {}, None, None, 0, {}, {}))
    best = max(records[:2], key=lambda record: record.values or ())
    against = against_best(records, best, context)
    assert {number: word_of(one) for number, one in against.items()} == {
        1 - best.number: "not told apart",
        2: "worse",
    }
    apart, worse, cover = apart_lines(best, against)
    assert apart.startswith(f"not told apart from trial {best.number} on dev: {1 - best.number} (-0.0")
    assert worse.startswith(f"worse than trial {best.number} on dev: 2 (-0.")
    assert "over the 250 items of dev" in cover and "other seeds are not in them" in cover


def test_the_items_of_the_best_evaluation_are_kept(tmp_path: Path) -> None:
    for figure, seed in ((0.4, 1), (0.6, 2), (0.5, 3)):
        keep_items(tmp_path, figure, items(seed))
    kept = items_of(tmp_path, 0.6)
    assert kept is not None and kept.figure() == items(2).figure()
    assert items_of(tmp_path, 0.5) is None


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (250, "dev has 250 queries: differences of docsearch mrr@10 below about 0.03 will not be told apart"),
        (1, "dev has one query: no difference has an interval"),
    ],
)
def test_what_a_dev_split_can_show(count: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"docsearch": {"count": count, "unit": "queries"}, "other": {"count": 9, "unit": "pairs"}}
    monkeypatch.setattr("stillhouse.preflight.limits.figure_facts", lambda *_: facts)
    workspace: Any = None
    one: Any = (None,)
    assert resolution(DevSuite(one, select="x"), "docsearch_cosine_mrr@10", workspace) == said
    assert resolution(DevSuite(one, select="x"), "other_spearman", workspace) == ""


def test_a_trial_keeps_the_items_of_its_checkpoint(context: Context) -> None:
    from stillhouse.search.trial import follow

    reports: list[dict[str, Any]] = []
    values = {"batch_size": 8}
    quick = dataclasses.replace(context, method="mse")
    follow(values, quick, reports.append)
    stage = quick.plan(values)
    kept = items_of(quick.workspace.path(stage), reports[-1][quick.quality])
    assert kept is not None and kept.figure() == pytest.approx(reports[-1][quick.quality])
