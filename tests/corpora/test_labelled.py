"""Labelled text: columns by name or order, hard negatives, NLI labels, and invalid files."""

import json
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.labelled import read_labelled, roles
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.values.data import Examples


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def triples(workspace: Workspace, examples: Examples) -> list[tuple[Any, ...]]:
    """Return the rows as texts."""
    rows = open_rows(workspace, examples)
    columns = []
    for name in ("query", "passage", "negatives"):
        if name in rows:
            texts = open_texts(workspace, examples.columns[name])
            columns.append([texts[ids.reshape(-1)] for ids in rows[name]])
    return [tuple(text for part in row for text in part) for row in zip(*columns, strict=True)]


def test_pairs_with_negatives_in_one_column(workspace: Workspace, tmp_path: Path) -> None:
    source = lines(
        tmp_path / "a.jsonl",
        [
            {"anchor": "q one", "positive": "p one", "negatives": ["n one", "n two", "n three"]},
            {"anchor": "q two", "positive": "n one", "negatives": ["p one", "n two"]},
            {"anchor": "q two", "positive": "p one", "negatives": ["n two"]},
            {"anchor": "", "positive": "p one", "negatives": ["n two", "n one"]},
        ],
    )
    examples = read_labelled(workspace, source, negatives=2)
    assert triples(workspace, examples) == [
        ("q one", "p one", "n one", "n two"),
        ("q two", "n one", "p one", "n two"),
    ]
    rows = open_rows(workspace, examples)
    assert rows["negatives"].shape == (2, 2) and examples.columns["negatives"] == examples.columns["passage"]
    assert rows["negatives"][0, 0] == rows["passage"][1], "equal texts have one id"
    assert read_labelled(workspace, source, negatives=2) == examples
    assert "negatives" not in read_labelled(workspace, source).columns


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_unnamed_columns_are_taken_in_order(
    workspace: Workspace, tmp_path: Path, name: str, separator: str
) -> None:
    rows = [["left", "right", "wrong"], ["one", "two", "three"], ["four", "five", "six"]]
    (tmp_path / name).write_text("\n".join(separator.join(row) for row in rows) + "\n")
    examples = read_labelled(workspace, str(tmp_path / name), negatives=1, limit=1)
    assert triples(workspace, examples) in ([("one", "two", "three")], [("four", "five", "six")])


def test_nli_labels_make_triples(workspace: Workspace, tmp_path: Path) -> None:
    nli = [
        ("p", "e1", "entailment"),
        ("p", "n", "neutral"),
        ("p", "c", "contradiction"),
        ("p", "e2", "entailment"),
        ("alone", "e3", "entailment"),
    ]
    source = lines(
        tmp_path / "nli.jsonl", [{"premise": p, "hypothesis": h, "label": label} for p, h, label in nli]
    )
    assert triples(workspace, read_labelled(workspace, source, negatives=1)) == [
        ("p", "e1", "c"),
        ("p", "e2", "c"),
    ]
    numbers = {"entailment": 0, "neutral": 1, "contradiction": 2}
    other = lines(
        tmp_path / "hub.jsonl",
        [{"premise": p, "hypothesis": h, "label": numbers[label]} for p, h, label in nli],
    )
    assert triples(workspace, read_labelled(workspace, other)) == [("p", "e1"), ("p", "e2")]


def test_a_changed_file_is_read_again(workspace: Workspace, tmp_path: Path) -> None:
    source = lines(tmp_path / "a.jsonl", [{"query": "a", "passage": "b"}])
    before = read_labelled(workspace, source)
    lines(tmp_path / "a.jsonl", [{"query": "a", "passage": "b"}, {"query": "c", "passage": "d"}])
    assert read_labelled(workspace, source) != before


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [(["a"], "columns query and passage"), (["a", "b", "c", "d"], "Rename them")],
)
def test_unknown_columns_are_refused(columns: list[str], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        roles(columns, "file")


def test_unreadable_files_are_reported(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ttwo\n")
    with pytest.raises(BadInput, match="labelled text must be one of"):
        read_labelled(workspace, str(tmp_path / "a.txt"))
    (tmp_path / "b.jsonl").write_text("no json at all\n")
    with pytest.raises(BadInput, match="must be readable as labelled text"):
        read_labelled(workspace, str(tmp_path / "b.jsonl"))
    empty = lines(tmp_path / "c.jsonl", [{"query": "", "passage": "b"}])
    with pytest.raises(BadInput, match="at least one usable row"):
        read_labelled(workspace, empty)
