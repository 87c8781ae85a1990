"""Files of scored candidates, in the forms in which common tools write them."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.forms import parse_row
from stillhouse.corpora.reading.labelled import read_scored
from stillhouse.corpora.tables import open_rows, open_texts, open_values
from stillhouse.values.data import Examples

STOCK = {"query": "q1", "positive": "right", "negative": "wrong", "score": 2.5}
NUMBERED = {
    "anchor": "q1",
    "positive": "right",
    **{f"negative_{number}": f"wrong {number}" for number in (1, 2, 10)},
    "labels": [9.0, 3.0, 2.0, 1.0],
}
FLAG = {
    "query": "q1",
    "pos": ["right", "also right"],
    "neg": ["wrong 1", "wrong 2"],
    "pos_scores": [9, 8.5],
    "neg_scores": [3.0, -2.0],
}
TEVATRON = {
    "query_id": "7",
    "query": "q1",
    "positive_passages": [{"docid": "1", "title": "Title", "text": "right", "score": 9.0}],
    "negative_passages": [
        {"docid": "2", "title": "", "text": "wrong 1", "score": 3.0},
        {"docid": "3", "text": "wrong 2", "score": -2.0},
    ],
}


def write(path: Path, *rows: Any) -> str:
    text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def shown(workspace: Workspace, examples: Examples) -> list[tuple[str, list[str], list[float]]]:
    """The examples as texts: query, passages with the positive first, and scores."""
    rows, scores = open_rows(workspace, examples), open_values(workspace, examples)["scores"]
    texts = {name: open_texts(workspace, table) for name, table in examples.columns.items()}
    return [
        (
            texts["query"][np.array([query])][0],
            texts["passage"][np.concatenate([[passage], negatives])],
            scores_C.tolist(),
        )
        for query, passage, negatives, scores_C in zip(
            rows["query"], rows["passage"], rows["negatives"], scores, strict=True
        )
    ]


@each_row(
    ("row", "expected"),
    [
        (STOCK, [(["right", "wrong"], (0.0, -2.5))]),
        ({**STOCK, "score": [7.0, 4.5]}, [(["right", "wrong"], (7.0, 4.5))]),
        ({**STOCK, "score": "2.5"}, [(["right", "wrong"], (0.0, -2.5))]),
        (NUMBERED, [(["right", "wrong 1", "wrong 2", "wrong 10"], (9.0, 3.0, 2.0, 1.0))]),
        (
            {**NUMBERED, "labels": [6.0, 7.0, 8.0]},
            [(["right", "wrong 1", "wrong 2", "wrong 10"], (0.0, -6.0, -7.0, -8.0))],
        ),
        (
            {"query": "q1", "positive": "right", "negatives": ["a", "b"], "scores": [3, 2, 1]},
            [(["right", "a", "b"], (3.0, 2.0, 1.0))],
        ),
        (
            FLAG,
            [
                (["right", "wrong 1", "wrong 2"], (9.0, 3.0, -2.0)),
                (["also right", "wrong 1", "wrong 2"], (8.5, 3.0, -2.0)),
            ],
        ),
        (TEVATRON, [(["Title right", "wrong 1", "wrong 2"], (9.0, 3.0, -2.0))]),
    ],
)
def test_every_form_gives_the_passages_with_their_scores(row: Any, expected: Any) -> None:
    found = parse_row(row, "line 1")
    assert [(list(each.passages), each.scores) for each in found] == expected
    assert {each.query for each in found} == {"q1"}


def test_margins_are_those_of_the_file() -> None:
    """The positive's score less the negative's, which is what MarginMSE compares."""
    (row,) = parse_row({**NUMBERED, "labels": [6.0, 7.0, 8.0]}, "line 1")
    assert [row.scores[0] - score for score in row.scores[1:]] == [6.0, 7.0, 8.0]


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.jsonl.gz"])
def test_a_file_is_read_as_examples(name: str, workspace: Workspace, tmp_path: Path) -> None:
    stock = {"query": "q1", "positive": "right", "negatives": ["a", "b", "c"], "scores": [5, 4, 3, 2]}
    source = write(tmp_path / name, FLAG, stock)
    examples = read_scored(workspace, source)
    assert examples.values == ("scores",) and list(examples.columns) == ["query", "passage", "negatives"]
    assert shown(workspace, examples) == [
        ("q1", ["right", "wrong 1", "wrong 2"], [9.0, 3.0, -2.0]),
        ("q1", ["also right", "wrong 1", "wrong 2"], [8.5, 3.0, -2.0]),
        ("q1", ["right", "a", "b"], [5.0, 4.0, 3.0]),
    ]
    assert len(open_texts(workspace, examples.columns["query"])) == 1


def test_tables_of_columns_are_read_too(workspace: Workspace, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: [value] for name, value in FLAG.items()}), tmp_path / "flag.parquet")
    (tmp_path / "stock.csv").write_text("query,positive,negative,score\nq1,right,wrong,2.5\n")
    flag = read_scored(workspace, str(tmp_path / "flag.parquet"))
    stock = read_scored(workspace, str(tmp_path / "stock.csv"))
    assert [scores for _, _, scores in shown(workspace, flag)] == [[9.0, 3.0, -2.0], [8.5, 3.0, -2.0]]
    assert shown(workspace, stock) == [("q1", ["right", "wrong"], [0.0, -2.5])]


def test_the_number_of_negatives_is_the_least_or_what_is_asked_for(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "scores.jsonl", STOCK, FLAG, NUMBERED)
    shapes = {}
    for negatives in (0, 1, 2, 3):
        examples = read_scored(workspace, source, negatives=negatives)
        shapes[negatives] = open_values(workspace, examples)["scores"].shape
    assert shapes == {0: (4, 2), 1: (4, 2), 2: (3, 3), 3: (1, 4)}
    printed = capsys.readouterr().err
    assert (
        "4 rows read: 3 kept, 0 duplicates, 1 with fewer than 2 hard negatives; 2 hard negatives each"
        in printed
    )
    assert "1 further negatives are left out" in printed
    with pytest.raises(BadInput, match=r"rows with 4 hard negatives, but those of .* have at most 3"):
        read_scored(workspace, source, negatives=4)
    limited = read_scored(workspace, source, negatives=2, limit=2)
    whole = read_scored(workspace, source, negatives=2)
    assert len(shown(workspace, limited)) == 2
    assert all(row in shown(workspace, whole) for row in shown(workspace, limited))


@each_row(
    ("row", "message"),
    [
        ({**FLAG, "neg_scores": [3.0]}, "line 1 of .* one score per passage, but has 1 scores for 2 neg"),
        ({**FLAG, "pos_scores": []}, "must have candidates, but its column pos_scores is empty"),
        ({**NUMBERED, "labels": [1.0, 2.0]}, "one score per passage, but has 2 scores for 4 passages"),
        ({**NUMBERED, "labels": 1.0}, "one score per passage, but has 1 scores for 4 passages"),
        ({**FLAG, "neg": [], "neg_scores": []}, "must have candidates, but its column neg is empty"),
        ({**TEVATRON, "negative_passages": []}, "must have candidates, but its column negative_passages"),
        ({**TEVATRON, "positive_passages": []}, "must have candidates, but its column positive_passages"),
        ({"query": "q", "positive": "p", "negatives": [], "scores": [1]}, "must have candidates"),
        ({**TEVATRON, "negative_passages": [{"text": "a"}]}, "a score for every passage"),
        ({**FLAG, "neg_scores": [3.0, float("nan")]}, "finite numbers as scores, but one is nan"),
        ({**STOCK, "score": float("inf")}, "finite numbers as scores, but one is inf"),
        ({**STOCK, "score": "high"}, "finite numbers as scores, but one is 'high'"),
        ({**STOCK, "score": [True, 1.0]}, "finite numbers as scores, but one is True"),
        ({**STOCK, "negative": " "}, "must have no empty text"),
        ({**FLAG, "query": ""}, "must have no empty text"),
        ({name: value for name, value in FLAG.items() if name != "neg_scores"}, "the column neg_scores"),
        ({**FLAG, "pos": "right"}, "must have a list in the column pos"),
        ({"query": "q", "positive": "p", "score": 1.0}, "scored text must have the columns query, positive"),
        ({"text": "q"}, "scored text must have the columns .* but line 1 of .* has text"),
        ("[1, 2]\n", "one JSON object"),
        ("{\n", "one JSON object, but is not"),
        ({**STOCK, "query": "half an emoji \ud83d"}, "line 1 of .* but is not: not Unicode"),
        ("", "nonempty file"),
        ("\n", "must not be empty"),
    ],
)
def test_bad_rows_are_refused_with_their_line(
    row: Any, message: str, workspace: Workspace, tmp_path: Path
) -> None:
    source = write(tmp_path / "scores.jsonl", row)
    with pytest.raises(BadInput, match=message):
        read_scored(workspace, source)
    assert not (workspace.root / "examples").exists()


def test_a_missing_file_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the file of scores .* does not exist"):
        read_scored(workspace, str(tmp_path / "none.jsonl"))
