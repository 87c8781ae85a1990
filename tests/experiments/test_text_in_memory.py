"""Text in memory: what is taken, what it becomes, and what is refused."""

import json
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from rows import each_row
from small_experiment import sentences

import stillhouse
from stillhouse import BadInput, Budget, Experiment, Pairs, Sentences, TeacherChoice, TransformerChoice
from stillhouse.experiments.fields import as_mapping
from stillhouse.experiments.text_in_memory import in_files

TEXTS = ["Iron rusts.", "Water\nis wet.", "3 < 4"]
ROWS = [("why?", "because"), ("when?", "now")]


@each_row(
    ("given", "column"),
    [
        (TEXTS, ""),
        (tuple(TEXTS), ""),
        (iter(TEXTS), ""),
        (pd.Series(TEXTS), ""),
        (pd.DataFrame({"body": TEXTS}), ""),
        (pd.DataFrame({"id": [1, 2, 3], "body": TEXTS}), "body"),
        (datasets.Dataset.from_dict({"id": [1, 2, 3], "text": TEXTS}), ""),
    ],
)
def test_texts_are_written_once_under_their_hash(given: Any, column: str, tmp_path: Path) -> None:
    held = Sentences(texts=given, column=column)
    assert str(held.texts) == "3 texts" and "texts=3 texts" in repr(held) and not held.is_pydocs
    with pytest.raises(BadInput, match=r"sentences.texts must be written to a file"):
        as_mapping(Experiment(data=(held,)))
    stored = in_files(Experiment(data=(held,)), tmp_path).source
    for same in (stored, Sentences(texts=TEXTS)):
        assert in_files(Experiment(data=same), tmp_path).source == stored
    assert isinstance(stored, Sentences)
    (file,) = (tmp_path / "texts").rglob("*.jsonl")
    assert [json.loads(line)["text"] for line in file.read_text().splitlines()] == TEXTS
    assert stored.corpus == str(file) and stored.texts is None


@each_row(
    "given",
    [
        ROWS,
        [{"query": query, "passage": passage} for query, passage in ROWS],
        pd.DataFrame(ROWS, columns=["query", "passage"]),
        datasets.Dataset.from_dict({"query": ["why?", "when?"], "passage": ["because", "now"]}),
    ],
)
def test_pairs_are_written_once_under_their_hash(given: Any, tmp_path: Path) -> None:
    stored = in_files(Experiment(data=Pairs(rows=given)), tmp_path).get(Pairs)
    assert Path(stored.path).name == "2-pairs.jsonl" and stored.rows is None
    lines = [json.loads(line) for line in Path(stored.path).read_text().splitlines()]
    assert lines == [{"query": query, "passage": passage} for query, passage in ROWS]


@each_row(
    ("make", "message"),
    [
        (lambda: Sentences(texts=[]), "sentences.texts must not be empty"),
        (lambda: Sentences(texts="one text"), "sentences.texts must be a list of texts"),
        (lambda: Sentences(texts=5), "sentences.texts must be a list of texts"),
        (lambda: Sentences(texts=["a", None]), r"sentences.texts\[1\] must be a text, but got text=None"),
        (lambda: Sentences(texts=["a", 5]), r"sentences.texts\[1\] must be a text, but got text=5"),
        (lambda: Sentences(texts=[b"a"]), r"sentences.texts\[0\] must be a text"),
        (lambda: Sentences(texts=["a", " \n"]), r"sentences.texts\[1\] must be a text"),
        (
            lambda: Sentences(texts=pd.Series(["a", float("nan")])),
            r"texts\[1\] must be a text, but got text=nan",
        ),
        (lambda: Sentences("a.txt", texts=["a"]), "sentences.texts must come without a corpus"),
        (
            lambda: Sentences(texts=pd.DataFrame({"id": [1], "body": ["a"]})),
            r"sentences.column must name a column .*columns=\['id', 'body'\]",
        ),
        (lambda: Sentences(texts=pd.DataFrame({"text": ["a"]}), column="body"), "column='body'"),
        (lambda: Pairs(rows=[]), "pairs.rows must not be empty"),
        (lambda: Pairs(rows=[("a", "b"), ("c",)]), r"pairs.rows\[1\] must be a query and a passage"),
        (
            lambda: Pairs(rows=[("a", "b"), ("c", "d", "e")]),
            r"pairs.rows\[1\] must have the columns of the first",
        ),
        (lambda: Pairs(rows=[{"query": "a", "passage": "b"}, {"query": "a", "answer": "b"}]), r"rows\[1\]"),
        (lambda: Pairs(rows=[("a", None)]), r"pairs.rows\[0\] must have a text or a number in 'passage'"),
        (lambda: Pairs(rows=[("a", b"b")]), r"pairs.rows\[0\] must have a text or a number in 'passage'"),
        (lambda: Pairs(rows=[("a", " ")]), r"pairs.rows\[0\] must have no blank text"),
        (lambda: Pairs("p.jsonl", rows=ROWS), "pairs.rows must come without a file"),
    ],
)
def test_what_is_no_text_is_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_a_student_learns_from_memory(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = sentences(120)
    experiment = Experiment(
        teacher=TeacherChoice(str(tiny_model)),
        student=TransformerChoice(layers=(0,)),
        data=(Sentences(texts=texts, held_out=20), Pairs(rows=[(text, text) for text in texts], negatives=0)),
        budget=Budget(distil=64, finetune=32, evaluations=1),
        max_length=16,
        compute="float32",
    )
    batches = {"batch_size": 16, "finetune_batch_size": 16}
    trained = stillhouse.train("mse", experiment, values=batches, root=tmp_path, device="cpu")
    printed = capsys.readouterr()
    assert "120-texts: JSON; 120 rows read: 120 kept" in printed.out + printed.err
    figures = stillhouse.evaluate(trained.folder, experiment, root=tmp_path, device="cpu")
    assert figures and len(list((tmp_path / "texts").rglob("*.jsonl"))) == 2
