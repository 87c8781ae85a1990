import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_manifest, sha256_of
from stillhouse.core.errors import BadInput
from stillhouse.corpora import tables
from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.tables import (
    open_judgements,
    open_rows,
    open_texts,
    open_values,
    shard_count,
    shard_size,
    write_collection,
    write_rows,
    write_texts,
)
from stillhouse.values.data import AllRows, Examples, Given

TEXTS = [f"This is sentence number {i}." for i in range(23)]


def test_rows_come_back_by_id_over_shards(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS, rows_per_shard=5)
    texts = open_texts(workspace, table)
    rows = [22, 0, 7, 7, 5, 4, 19]
    assert len(texts) == 23
    assert texts[rows] == [TEXTS[i] for i in rows]
    assert texts[np.array([], dtype=np.int64)] == []
    assert texts.shard(4) == TEXTS[20:]
    assert texts.shard_starts.tolist() == [0, 5, 10, 15, 20]


def test_shards_of_a_large_table_are_larger(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a thousand million rows are some thousand files; the limit of memory maps is 65,530."""
    assert [shard_size(2048, index) for index in (0, 511, 512, 1024, 2559, 2560, 10**6)] == [
        *(2048, 2048, 4096, 8192, 32_768, 65_536, 65_536)
    ]
    counts = [shard_count(rows) for rows in (0, 1, 2048, 2049, 512 * 2048, 512 * 2048 + 1, 10**9)]
    assert counts == [0, 1, 1, 2, 512, 513, 17_323]
    monkeypatch.setattr(tables, "_SHARDS_PER_SIZE", 2)
    monkeypatch.setattr(tables, "_DOUBLINGS", 2)
    texts = [f"text {row}" for row in range(53)]
    table = write_texts(workspace, "large", texts, rows_per_shard=3)
    shards = read_manifest(workspace.path(table))["shards"]
    assert [shard["rows"] for shard in shards] == [3, 3, 6, 6, 12, 12, 11] and shard_count(53, 3) == 7
    opened = open_texts(workspace, table)
    assert list(opened) == texts and opened[[52, 0, 6, 17, 18]] == [texts[row] for row in (52, 0, 6, 17, 18)]


def test_a_small_shard_cache_gives_the_same_rows(workspace: Workspace) -> None:
    from stillhouse.corpora.tables import Texts

    table = write_texts(workspace, "numbers", TEXTS, rows_per_shard=2)
    texts = Texts(workspace.path(table), cached_shards=1)
    order = np.random.default_rng(0).permutation(23)
    assert texts[order] == [TEXTS[i] for i in order]


@each_row("rows", [[-1], [23], [0, 99]])
def test_ids_outside_the_table_are_refused(workspace: Workspace, rows: list[int]) -> None:
    texts = open_texts(workspace, write_texts(workspace, "numbers", TEXTS))
    with pytest.raises(IndexError, match=r"\[0, 23\)"):
        texts[rows]


def test_every_row_is_accounted_for(workspace: Workspace) -> None:
    rows: list[str | Rejected] = [
        *TEXTS,
        "",
        " \t ",
        TEXTS[3].upper(),
        TEXTS[0],
        "a lone \ud83d half",
        Rejected("caf\udce9", "not UTF-8"),
    ]
    table = write_texts(workspace, "mixed", rows, rows_per_shard=10)
    manifest = read_manifest(workspace.path(table))
    assert (manifest["rows"], manifest["duplicates"], manifest["quarantined"]) == (23, 2, 4)
    assert manifest["input_rows"] == len(rows)
    assert manifest["quarantine_reasons"] == {"empty": 2, "not UTF-8": 1, "not valid Unicode": 1}
    kept = (workspace.path(table) / "quarantine.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["row"] for line in kept] == [23, 24, 27, 28]


def test_duplicates_can_be_kept(workspace: Workspace) -> None:
    table = write_texts(workspace, "twice", [*TEXTS, *TEXTS], deduplicate=False)
    assert len(open_texts(workspace, table)) == 46


def test_the_name_depends_only_on_the_content(workspace: Workspace) -> None:
    once = write_texts(workspace, "numbers", TEXTS, rows_per_shard=5)
    again = write_texts(workspace, "numbers", iter(TEXTS), rows_per_shard=5)
    other = write_texts(workspace, "numbers", [*TEXTS, "One more."], rows_per_shard=5)
    assert once == again and once.sha256 != other.sha256
    folder = workspace.path(once)
    assert folder.name == f"numbers-{once.fingerprint}"
    for shard in read_manifest(folder)["shards"]:
        assert sha256_of(folder / shard["name"]) == shard["sha256"]


def test_a_source_without_usable_rows_is_refused_with_the_reasons(workspace: Workspace) -> None:
    with pytest.raises(BadInput, match=r"bad has none: 3 rows were read, of which 2 empty, 1 too long"):
        write_texts(workspace, "bad", ["", " ", Rejected("x", "too long")])
    assert list((workspace.root / "corpora").iterdir()) == []


def test_a_failing_source_leaves_nothing(workspace: Workspace) -> None:
    def broken() -> Iterator[str]:
        yield from TEXTS
        raise BadInput("the source broke")

    with pytest.raises(BadInput, match="broke"):
        write_texts(workspace, "broken", broken(), rows_per_shard=5)
    assert list((workspace.root / "corpora").iterdir()) == []


def _slowly(root: Path) -> None:
    def rows() -> Iterator[str]:
        yield from TEXTS
        time.sleep(60)

    write_texts(Workspace(root), "slow", rows(), rows_per_shard=5, deduplicate=False)


def test_leftovers_of_a_killed_writer_are_cleaned_up(workspace: Workspace) -> None:
    shelf = workspace.root / "corpora"
    process = multiprocessing.get_context("fork").Process(target=_slowly, args=(workspace.root,))
    process.start()
    deadline = time.monotonic() + 20
    while not list(shelf.glob("*/part-00003.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.pid is not None
    live = write_texts(workspace, "numbers", TEXTS)
    assert list(shelf.glob("*/part-00003.parquet")), "a living writer is left alone"
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    again = write_texts(workspace, "numbers", TEXTS)
    assert again == live
    assert [path.name for path in shelf.iterdir() if path.is_dir()] == [workspace.path(live).name]


def test_an_unfinished_folder_is_replaced(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    (workspace.path(table) / "manifest.json").unlink()
    (workspace.path(table) / "part-00000.parquet").write_bytes(b"half")
    assert not workspace.finished(table)
    write_texts(workspace, "numbers", TEXTS)
    assert open_texts(workspace, table)[[3]] == [TEXTS[3]]


def test_a_truncated_shard_is_named(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    shard = workspace.path(table) / "part-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(
        BadInput, match=r"part-00000\.parquet must be as it was written.* moved to .*quarantine"
    ):
        open_texts(workspace, table)[[0]]


def test_examples_round_trip(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    columns = {"query": table, "negatives": table}
    rows = {"query": np.array([3, 1]), "negatives": np.array([[0, 2], [4, 22]])}
    examples = write_rows(workspace, columns, rows, "pairs")
    back = open_rows(workspace, examples)
    assert isinstance(examples.origin, Given)
    assert back["query"].tolist() == [3, 1] and back["negatives"].tolist() == [[0, 2], [4, 22]]
    swapped = write_rows(workspace, columns, {**rows, "query": np.array([1, 3])}, "pairs")
    assert swapped.fingerprint != examples.fingerprint


def test_values_round_trip_with_the_ids(workspace: Workspace) -> None:
    columns = {"text": write_texts(workspace, "numbers", TEXTS)}
    rows = {"text": np.array([3, 1])}
    values = {"label": np.array([1, 0], dtype=np.int32), "logits": np.array([[0.5, 1.0], [2.0, -1.0]])}
    examples = write_rows(workspace, columns, rows, "labelled", values=values)
    assert list(open_rows(workspace, examples)) == ["text"] and examples.values == ("label", "logits")
    back = open_values(workspace, examples)
    assert back["label"].dtype == np.int64 and back["label"].tolist() == [1, 0]
    assert back["logits"].dtype == np.float32 and back["logits"].tolist() == values["logits"].tolist()
    other = write_rows(workspace, columns, rows, "labelled", values={**values, "label": np.array([1, 1])})
    bare = write_rows(workspace, columns, rows, "labelled")
    assert len({each.fingerprint for each in (examples, other, bare)}) == 3
    assert bare.values == () and open_values(workspace, bare) == {}


def test_wrong_values_are_refused(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    columns, rows = {"text": table}, {"text": np.array([3, 1])}
    wrong = {
        "same number of rows": {"label": np.array([1])},
        "finite": {"score": np.array([1.0, np.nan])},
        "must be a number": {"label": np.array(["a", "b"])},
        "names of their own": {"text": np.array([1, 0])},
    }
    for message, values in wrong.items():
        with pytest.raises(BadInput, match=message):
            write_rows(workspace, columns, rows, "labelled", values=values)


def test_all_rows_need_no_folder(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    rows = open_rows(workspace, Examples({"text": table}, AllRows()))
    assert rows["text"].tolist() == list(range(23))


def test_wrong_rows_are_refused(workspace: Workspace) -> None:
    table = write_texts(workspace, "numbers", TEXTS)
    both = {"query": table, "passage": table}
    with pytest.raises(BadInput, match=r"row ids of passage must be in \[0, 23\)"):
        write_rows(workspace, both, {"query": np.array([0]), "passage": np.array([23])}, "pairs")
    with pytest.raises(BadInput, match="same number of rows"):
        write_rows(workspace, both, {"query": np.array([0]), "passage": np.array([1, 2])}, "pairs")
    with pytest.raises(BadInput, match="columns == rows"):
        write_rows(workspace, both, {"query": np.array([0])}, "pairs")
    with pytest.raises(BadInput, match="manifest"):
        open_rows(workspace, Examples({"query": table}, Given("0" * 64)))


def test_a_collection_round_trips(workspace: Workspace) -> None:
    queries, passages = write_texts(workspace, "q", TEXTS[:2]), write_texts(workspace, "p", TEXTS)
    qrels = np.array([[0, 5, 1], [1, 2, 1]])
    collection = write_collection(workspace, "search", queries, passages, qrels)
    assert open_judgements(workspace, collection).qrels_N3.tolist() == qrels.tolist()
    with pytest.raises(BadInput, match=r"row ids of queries must be in \[0, 2\)"):
        write_collection(workspace, "search", queries, passages, np.array([[2, 0, 1]]))
    with pytest.raises(BadInput, match="3 columns"):
        write_collection(workspace, "search", queries, passages, np.array([[0, 0]]))
