"""Rows that are left out, sampled or cut keep what belongs to them, whatever kind of examples they are in."""

from collections.abc import Callable
from typing import Any

import numpy as np
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.tables import open_examples, open_texts, write_rows, write_texts
from stillhouse.values.data import AllRows, Examples, TextTable, fewer_negatives, sample

N, BARRED = 40, 7
IDS = np.arange(N)


def examples_of(workspace: Workspace, kind: str) -> Examples:
    """Rows of a kind; row i has the text i of a table, and further columns or values that tell it apart."""

    def table(name: str) -> TextTable:
        return write_texts(workspace, name, [f"{name} number {row} is a text" for row in range(N)])

    many = (IDS[:, None] + np.arange(1, 4)) % N
    columns: dict[str, dict[str, Any]] = {
        "texts": {"text": IDS},
        "pairs": {"query": IDS, "passage": IDS[::-1]},
        "triples": {"query": IDS, "passage": IDS, "negatives": many},
        "scored": {"query": IDS, "passage": IDS, "negatives": many},
        "task": {"text": IDS, "other": IDS[::-1]},
        "claims": {"claim": IDS, "documents": many},
        "translations": {"source": IDS, "target": IDS},
    }
    values: dict[str, dict[str, Any]] = {
        "scored": {"scores": IDS[:, None] + np.arange(4) / 8},
        "task": {"label": IDS % 3},
        "claims": {"gold": (many % 2), "gold_count": IDS},
    }
    runs = [{"corpus": at, "language": name, "rows": rows} for at, (name, rows) in enumerate(RUNS)]
    tables = {name: table("passage" if name == "negatives" else name) for name in columns[kind]}
    if kind == "texts":
        return Examples(tables, AllRows())
    notes = {"parallel": runs} if kind == "translations" else {"split_by": "page"}
    return write_rows(workspace, tables, columns[kind], kind, notes, values.get(kind))


RUNS = [("de", 10), ("fr", 0), ("fr", 25), ("de", 5)]
KINDS = ("texts", "pairs", "triples", "scored", "task", "claims", "translations")


def contents(workspace: Workspace, examples: Examples) -> list[tuple[Any, ...]]:
    """Each row's texts, values and language."""
    rows = open_examples(workspace, examples)
    parts: list[list[Any]] = []
    for name, ids in rows.ids.items():
        found = np.array(open_texts(workspace, examples.columns[name])[ids], object).reshape(ids.shape)
        parts.append(found.tolist())
    parts += [rows.values[name].tolist() for name in examples.values]
    if "parallel" in rows.notes:
        parts.append([run["language"] for run in rows.notes["parallel"] for _ in range(run["rows"])])
    else:
        assert isinstance(examples.origin, AllRows) or not rows.notes or rows.notes["split_by"] == "page"
    return list(zip(*parts, strict=True))


@each_row("kind", KINDS)
def test_held_out_and_sampled_rows_keep_what_they_hold(kind: str, workspace: Workspace) -> None:
    whole = examples_of(workspace, kind)
    barrier = Barrier(workspace)
    name = list(whole.columns)[-1]
    (text,) = open_texts(workspace, whole.columns[name])[[BARRED]]
    barrier.declare("search", [write_texts(workspace, "queries", [f"See. {text.upper()}!"])])

    def held_out(examples: Examples) -> Examples:
        return barrier.without(examples, "rows")

    def is_free(row: tuple[Any, ...]) -> bool:
        return text not in str(row)

    everything = contents(workspace, whole)
    free = [row for row in everything if is_free(row)]
    assert 0 < N - len(free) <= 4, name
    assert contents(workspace, held_out(whole)) == free
    ways: list[Callable[[Examples], Examples]] = [lambda each: sample(each, 0.5)]
    if "negatives" in whole.columns:
        ways.append(lambda each: fewer_negatives(each, 2))
        ways.append(lambda each: sample(fewer_negatives(each, 2), 0.5))
    for way in ways:
        part = contents(workspace, way(whole))
        assert contents(workspace, held_out(way(whole))) == [row for row in part if is_free(row)]
        after = contents(workspace, way(held_out(whole)))
        assert after and all(is_free(row) for row in after) and len(after) <= len(free)
        if way is ways[0]:
            assert set(map(str, part)) <= set(map(str, everything))
            assert set(map(str, after)) <= set(map(str, free)) and len(after) < len(free)
    assert barrier.left_out["rows"]["search"] > 0


def test_a_free_set_of_rows_stays_as_it_is(workspace: Workspace) -> None:
    whole, barrier = examples_of(workspace, "scored"), Barrier(workspace)
    assert barrier.without(whole, "rows") is whole
    barrier.declare("search", [write_texts(workspace, "queries", ["Nobody asks for this one."])])
    assert barrier.without(whole, "rows") is whole
    assert barrier.without(whole, "rows") is whole and barrier.left_out["rows"] == {"search": 0}
