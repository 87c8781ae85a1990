"""GLUE's published file layouts in miniature: columns, quotation marks, broken rows, fractions."""

import json
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.corpora.published.glue import TASKS, Row, read_task, resolve_task
from stillhouse.corpora.row_shares import stratified

FILES = {
    ("sst2", "dev", "dev.tsv"): "sentence\tlabel\nit 's \"a charming journey . \t1\nbleak \t0\n",
    ("qqp", "train", "train.tsv"): (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        '1\t2\t3\tWho is "he"?\tWho\u2028 is he?\t1\n4\t5\t6\tbroken off\n7\t8\t9\tA\tB\t0\r\n'
    ),
    ("mnli", "dev_mismatched", "dev_mismatched.tsv"): (
        "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
        "0\tp\th\tneutral\tneutral\n1\tp\th\tneutral\t-\n2\tq\tg\tentailment\tcontradiction\n"
    ),
    ("mrpc", "train", "msr_paraphrase_train.txt"): (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        '1\t10\t11\tHe said "no.\tHe said no\n0\t1\t2\ta\tb\n'
    ),
    (
        "rte",
        "dev",
        "dev.tsv",
    ): "index\tsentence1\tsentence2\tlabel\n0\tp\th\tnot_entailment\n1\tp\tg\tentailment\n",
}
EXPECTED = {
    "sst2": [Row("it 's \"a charming journey . ", None, 1), Row("bleak ", None, 0)],
    "qqp": [Row('Who is "he"?', "Who\u2028 is he?", 1), Row("A", "B", 0)],
    "mnli": [Row("p", "h", 1), Row("q", "g", 2)],
    "mrpc": [Row('He said "no.', "He said no", 1), Row("a", "b", 0)],
    "rte": [Row("p", "h", 1), Row("p", "g", 0)],
}


def rows_of(folder: Path, task: str, split: str, name: str, content: str) -> list[Row]:
    (folder / name).write_text(content, newline="")
    return read_task(resolve_task(task, folder, split))


@each_row("key", FILES)
def test_the_published_layouts(key: tuple[str, str, str], tmp_path: Path) -> None:
    task, split, name = key
    assert rows_of(tmp_path, task, split, name, FILES[key]) == EXPECTED[task]


def test_json_with_both_texts_in_one_field(tmp_path: Path) -> None:
    pairs = [
        {"sentence": "first sentence: Who: he?\nsecond sentence: Who?", "label": "True"},
        {"sentence": "first sentence: A\nsecond sentence: B", "label": "False"},
    ]
    found = rows_of(tmp_path, "qqp", "dev", "dev.json", json.dumps(pairs))
    assert found == [Row("Who: he?", "Who?", 1), Row("A", "B", 0)]
    nli = [{"sentence": "sentence 1: p\nsentence 2: h", "label": name} for name in ("-", "neutral")]
    assert rows_of(tmp_path, "mnli", "dev", "dev.json", json.dumps(nli)) == [Row("p", "h", 1)]
    nli[0]["label"] = "contradiction"
    assert rows_of(tmp_path, "rte", "train", "train.json", json.dumps(nli[:1])) == [Row("p", "h", 1)]


@each_row(
    ("task", "name", "content", "message"),
    [
        ("sst2", "dev.tsv", "text\tlabel\na\t1\n", "sentence"),
        ("rte", "dev.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", "no labels"),
        ("rte", "dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\n", "line 2"),
        ("sst2", "dev.tsv", "sentence\tlabel\na\t2\n", "line 2"),
        ("sst2", "dev.tsv", "sentence\tlabel\n", "labelled rows"),
        ("qqp", "dev.json", "{", "JSON"),
        ("qqp", "dev.json", '{"sentence": "a"}', "line 1: must be an object"),
        ("qqp", "dev.json", '[{"sentence": "a"}]', "item 1"),
        ("qqp", "dev.json", '[{"sentence": "first: a", "label": "True"}]', "2 named texts"),
        ("qqp", "dev.json", '[{"sentence": "first: a\\nsecond: b", "label": "maybe"}]', "maybe"),
    ],
)
def test_malformed_files_are_refused(
    task: str, name: str, content: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        rows_of(tmp_path, task, "dev", name, content)


def test_unknown_and_missing_files_are_refused(tmp_path: Path) -> None:
    for given, message in (
        (("sst", "dev"), "sst2"),
        (("mnli", "dev_match"), "dev_matched"),
        (("rte", "test"), "no labelled split"),
        (("rte", "dev"), r"dev\.tsv"),
    ):
        with pytest.raises(BadInput, match=message):
            resolve_task(given[0], tmp_path, given[1])
    (tmp_path / "dev.tsv").write_bytes(b"sentence\tlabel\n\xff\t1\n")
    with pytest.raises(BadInput, match="UTF-8"):
        read_task(resolve_task("sst2", tmp_path, "dev"))


def test_the_identity_depends_on_the_content(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\na\t1\n")
    data = resolve_task("sst2", tmp_path, "dev")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nb\t1\n")
    with pytest.raises(BadInput, match="changed"):
        read_task(data)
    assert resolve_task("sst2", tmp_path, "dev").sha256 != data.sha256


def test_a_fraction_keeps_the_proportions_and_the_order() -> None:
    rows = [Row(str(at), None, int(at % 4 == 0)) for at in range(400)]
    tenth = stratified(rows, 0.1)
    assert len(tenth) == 40 and sum(row.label for row in tenth) == 10
    assert [int(row.first) for row in tenth] == sorted(int(row.first) for row in tenth)
    assert tenth == stratified(rows, 0.1)
    assert set(tenth) < set(stratified(rows, 0.3)) < set(rows) == set(stratified(rows, 1.0))
    rare = [Row("rare", None, 1), *rows[1:4]]
    assert Row("rare", None, 1) in stratified(rare, 0.01)


@each_row("options", [{"fraction": 0.0}, {"fraction": 1.1}, {"rows": [], "fraction": 1.0}])
def test_fractions_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        stratified(**{"rows": [Row("a", None, 0)], **options})


def test_every_task_knows_its_own_labels() -> None:
    for task in TASKS.values():
        assert set(task.other_names.values()) <= set(task.labels)
