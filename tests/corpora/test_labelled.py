"""Labelled text: columns by name or order, hard negatives, NLI labels, and invalid files."""

import json
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.labelled import read_labelled
from stillhouse.corpora.reading.schema import Schema
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


CONTRADICTED = [("dance", "Bees dance.", 1), ("dance", "No bees.", 0), ("dance", "Last week.", 2)]
PAIR = [("a", "b")]
NLI = "0: contradiction, 1: entailment, 2: neutral"


def rows(columns: str, *cells: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in cells]


NUMBERED = rows("sentence1 sentence2 label", *CONTRADICTED)
DUPLICATES = rows("question1 question2 is_duplicate", ("rice?", "cook rice?", 1), ("rice?", "Peru?", 0))
SIMILAR = rows("sentence1 sentence2 score", ("a", "b", 5), ("a", "c", 0))
FLAG = [{"query": "q", "pos": ["p1", "p2"], "neg": ["n1", "n2"], "prompt": "x", "pos_scores": [1, 2]}]
TEVATRON = [
    {
        "query": "q",
        "positive_passages": [{"docid": "1", "title": "T", "text": "p"}],
        "negative_passages": [{"docid": "2", "title": "", "text": "n"}],
    }
]


@each_row(
    ("given", "negatives", "schema", "expected"),
    [
        (NUMBERED, 0, Schema(), "found without one: 0, 1, 2"),
        (NUMBERED, 1, Schema(labels=NLI), [("dance", "Bees dance.", "No bees.")]),
        (NUMBERED, 1, Schema(labels="0: neutral"), "found without one: 1, 2"),
        (NUMBERED, 0, Schema(positive="label = 1"), [("dance", "Bees dance.")]),
        (NUMBERED[:2], 1, Schema(), "found without one: 0, 1"),
        (DUPLICATES, 0, Schema(), "is_duplicate"),
        (DUPLICATES, 0, Schema(positive="is_duplicate = 1"), [("rice?", "cook rice?")]),
        (
            DUPLICATES,
            0,
            Schema(columns="unused: is_duplicate"),
            [("rice?", "cook rice?"), ("rice?", "Peru?")],
        ),
        (SIMILAR, 0, Schema(), "column score beside its pairs"),
        (rows("query passage score", ("a", "b", 0)), 0, Schema(), "column score beside its pairs"),
        (SIMILAR, 0, Schema(positive="score >= 4"), PAIR),
        (rows("sentence1 sentence2 label", ("a", "b", 4.2)), 0, Schema(), "found without one: 4.2"),
        (
            rows("premise hypothesis label", ("a", "b", "Entailment"), ("a", "c", "Contradiction")),
            1,
            Schema(),
            [("a", "b", "c")],
        ),
        (rows("premise hypothesis label", ("a", "b", "entailment")), 0, Schema(), PAIR),
        (rows("id question context", ("x17", "a", "b")), 0, Schema(), PAIR),
        (rows("question context answer", ("a", "b", "c")), 0, Schema(), "2 of them could be the passage"),
        (rows("question context answer", ("a", "c", "b")), 0, Schema(columns="passage: answer"), PAIR),
        (rows("query text", ("a", "b")), 0, Schema(), PAIR),
        (rows("id text", ("a", "b")), 0, Schema(), "none is the query"),
        (rows("left right wrong", ("a", "b", "c")), 0, Schema(), "none is the query"),
        (rows("left right", ("a", "b")), 0, Schema(), PAIR),
        (rows("left right", ("a", "b")), 0, Schema(columns="query: lefft"), "Did you mean left"),
        (FLAG, 1, Schema(), [("q", "p1", "n1"), ("q", "p2", "n1")]),
        (FLAG, 0, Schema(), [("q", "p1"), ("q", "p2")]),
        ([{"query": "q", "pos": ["p"], "neg": []}], 0, Schema(), [("q", "p")]),
        (
            [{"query": "q", "pos": ["p"], "neg": []}, *FLAG],
            2,
            Schema(),
            [("q", "p1", "n1", "n2"), ("q", "p2", "n1", "n2")],
        ),
        (TEVATRON, 1, Schema(), [("q", "T p", "n")]),
    ],
)
def test_columns_and_labels_mean_what_they_say_or_are_refused(
    workspace: Workspace, tmp_path: Path, given: Any, negatives: int, schema: Schema, expected: Any
) -> None:
    source = lines(tmp_path / "a.jsonl", given)
    if isinstance(expected, str):
        with pytest.raises(BadInput, match=expected):
            read_labelled(workspace, source, negatives=negatives, schema=schema)
        return
    found = read_labelled(workspace, source, negatives=negatives, schema=schema)
    assert triples(workspace, found) == expected


def test_the_names_of_class_labels_give_them_their_meaning(workspace: Workspace, tmp_path: Path) -> None:
    import datasets

    names = datasets.ClassLabel(names=["contradiction", "entailment", "neutral"])
    text = datasets.Value("string")
    features = datasets.Features({"sentence1": text, "sentence2": text, "label": names})
    found = datasets.Dataset.from_list(NUMBERED, features=features)
    found.to_parquet(tmp_path / "nli.parquet")
    found.save_to_disk(tmp_path / "saved")
    for source in ("nli.parquet", "saved"):
        read = read_labelled(workspace, str(tmp_path / source), negatives=1)
        assert triples(workspace, read) == [("dance", "Bees dance.", "No bees.")]


def test_rows_add_up_and_are_said_again_from_the_cache(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ("entailment", "neutral", "contradiction")
    nli = [(f"p{i}", f"{kind} {i}", kind) for i in range(8) for kind in kinds]
    cells = [*nli, nli[0], ("p0", "", "neutral"), ("p0", "x", "-")]
    source = lines(tmp_path / "nli.jsonl", rows("premise hypothesis label", *cells))
    read_labelled(workspace, source, negatives=1)
    said = capsys.readouterr().err
    assert (
        "nli: JSON; 27 rows read: 8 kept, 1 duplicates, 8 neutral (not used), "
        "8 contradiction (hard negatives), 1 without a sentence, 1 without label" in said
    )
    assert "query     <- premise      p0" in said and "passage   <- hypothesis   entailment 0" in said
    read_labelled(workspace, source, negatives=1)
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.csv"])
def test_quotation_marks_and_na_are_text(workspace: Workspace, tmp_path: Path, name: str) -> None:
    mark = '"' if name == "pairs.tsv" else ""
    cells = [(f"{mark if i in (3, 90) else ''}q{i}" if i else "NA", f"p{i}") for i in range(100)]
    separator = "\t" if name == "pairs.tsv" else ";"
    (tmp_path / name).write_text(
        "".join(separator.join(row) + "\n" for row in [("query", "passage"), *cells]), encoding="utf-8-sig"
    )
    assert triples(workspace, read_labelled(workspace, str(tmp_path / name))) == cells


def test_a_changed_file_is_read_again(workspace: Workspace, tmp_path: Path) -> None:
    source = lines(tmp_path / "a.jsonl", [{"query": "a", "passage": "b"}])
    before = read_labelled(workspace, source)
    lines(tmp_path / "a.jsonl", [{"query": "a", "passage": "b"}, {"query": "c", "passage": "d"}])
    assert read_labelled(workspace, source) != before


def test_unreadable_files_are_reported(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ttwo\n")
    with pytest.raises(BadInput, match="labelled text must be one of"):
        read_labelled(workspace, str(tmp_path / "a.txt"))
    (tmp_path / "b.jsonl").write_text("no json at all\n")
    with pytest.raises(BadInput, match="1 not JSON"):
        read_labelled(workspace, str(tmp_path / "b.jsonl"))
    (tmp_path / "b.csv").write_text("\n")
    with pytest.raises(BadInput, match="labelled text must not be empty"):
        read_labelled(workspace, str(tmp_path / "b.csv"))
    (tmp_path / "d.csv").write_bytes(b"query,passage,gr\xf6sse\na,b,1\n")
    with pytest.raises(BadInput, match="must have names of columns in utf-8"):
        read_labelled(workspace, str(tmp_path / "d.csv"))
    empty = lines(tmp_path / "c.jsonl", [{"query": "", "passage": "b"}])
    with pytest.raises(BadInput, match="at least one usable row"):
        read_labelled(workspace, empty)
