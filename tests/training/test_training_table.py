import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rows import each_row
from stand_ins import TEACHER_DIM, Vectors, Words, stage, table  # type: ignore[import-not-found]

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.roles import Reading
from stillhouse.corpora.tables import write_rows, write_texts
from stillhouse.corpora.tokens import build_tokens
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.prefetch import batches, check_shares
from stillhouse.training.sampler import Order
from stillhouse.training.table import EveryRow, Reader, TrainingTable, on_device, open_table
from stillhouse.values.data import AllRows, Examples


def with_negatives() -> TrainingTable:
    rows = {"query": np.array([0, 1, 2, 3]), "negatives": np.array([[1, 2], [2, 3], [3, 0], [0, 1]])}
    stores = {"query": Vectors(np.array([0, 1, 3])), "negatives": Vectors(np.array([0, 1, 2]))}
    return TrainingTable(rows, {"query": Words(4), "negatives": Words(4)}, stores)


def test_examples_without_a_vector_are_dropped_and_counted() -> None:
    table = with_negatives()
    assert len(table) == 2 and table.dropped == 2
    np.testing.assert_array_equal(table.rows["query"], [0, 3])
    np.testing.assert_array_equal(table.rows["negatives"], [[1, 2], [0, 1]])


def test_a_batch_gathers_every_column() -> None:
    batch = with_negatives().batch(np.array([1, 0]))
    assert batch.rows["query"].tolist() == [3, 0] and batch.rows["negatives"].tolist() == [[0, 1], [1, 2]]
    assert len(batch.tokens["negatives"].input_ids_BT) == 4, "K texts per row, flattened row by row"
    vectors = batch.teacher["negatives"].embedding_BD.numpy()
    assert vectors.shape == (4, TEACHER_DIM) and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, Vectors(np.arange(3)).gather(np.array([0, 1, 1, 2])))
    expected = Words(4).padded(np.array([0, 1, 1, 2])).input_ids_BT
    assert batch.tokens["negatives"].input_ids_BT.tolist() == expected.tolist()


def large(rows: int, lacking: list[int]) -> TrainingTable:
    vectors = Vectors(np.setdiff1d(np.arange(1000), lacking))
    return TrainingTable({"text": EveryRow(rows)}, {"text": Words(rows)}, {"text": vectors})


@each_row("lacking", [[], [0], [0, 1, 5], [2, 3, 4, 9], [9], [0, 2, 4, 6, 8]])
def test_all_rows_of_a_table_are_read_like_an_array_of_them(lacking: list[int]) -> None:
    lazy = large(10, lacking)
    array = TrainingTable({"text": np.arange(10)}, lazy.tokens, lazy.stores)
    assert len(lazy) == len(array) == 10 - len(lacking) and lazy.dropped == array.dropped == len(lacking)
    every = np.random.default_rng(0).permutation(len(lazy))
    one, other = lazy.batch(every), array.batch(every)
    assert one.rows["text"].tolist() == other.rows["text"].tolist()
    assert one.tokens["text"].input_ids_BT.tolist() == other.tokens["text"].input_ids_BT.tolist()
    assert one.teacher["text"].embedding_BD.tolist() == other.teacher["text"].embedding_BD.tolist()
    assert lazy.lengths_of(every).tolist() == array.lengths_of(every).tolist()
    blocks = [np.concatenate(list(each.teacher_blocks(3)["text"])) for each in (lazy, array)]
    assert blocks[0].tolist() == blocks[1].tolist()
    samples = [[t.input_ids_BT.tolist() for t in each.sample(4, at_once=3)] for each in (lazy, array)]
    assert samples[0] == samples[1]


def test_a_stage_that_reads_all_rows_holds_no_array_of_them(workspace: Workspace, tiny_model: Path) -> None:
    texts = write_texts(workspace, "words", [f"word {row}" for row in range(20)])
    model = resolve_model(str(tiny_model))
    plan = stage(examples=Examples({"text": texts}, AllRows()), max_length=16)
    reader = Reader(model, Reading(16))
    for tokens in reader.tables(plan.examples).values():
        build_tokens(workspace, tokens)
    opened = open_table(workspace, plan, reader)
    assert isinstance(opened.rows["text"], EveryRow) and len(opened) == 20
    few = replace(plan, examples=write_rows(workspace, {"text": texts}, {"text": np.arange(3, 15)}, "few"))
    assert open_table(workspace, few, reader).batch(np.array([0, 11])).rows["text"].tolist() == [3, 14]


def test_a_place_outside_is_refused() -> None:
    ids = EveryRow(10).without(np.array([3, 7])).without(np.array([3, 5]))
    assert len(ids) == 7 and ids[np.arange(7)].tolist() == [0, 1, 2, 4, 6, 8, 9]
    for place in (-1, 7):
        with pytest.raises(IndexError, match=r"\[0, 7\)"):
            ids[np.array([place])]


def test_a_thousand_million_rows_need_no_memory() -> None:
    """An array of them has 8 GB, and each trial opened one."""
    tracemalloc.start()
    ids = EveryRow(1_000_000_000).without(np.array([17, 999_999_999]))
    order = Order(len(ids), seed=3)
    assert len(order.take(900_000_000, 128)) == 128 and ids[np.array([17])].tolist() == [18]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6, peak


def test_values_follow_their_rows() -> None:
    rows, vectors_by_row = {"text": np.array([0, 1, 2, 3])}, Vectors(np.array([0, 2, 3]))
    logits = np.arange(8, dtype=np.float32).reshape(4, 2)
    values = {"label": np.array([0, 1, 0, -1]), "logits": logits}
    table = TrainingTable(rows, {"text": Words(4)}, {"text": vectors_by_row}, values)
    batch = table.batch(np.array([2, 0]))
    assert table.dropped == 1 and batch.rows["text"].tolist() == [3, 0]
    assert batch.values["label"].tolist() == [-1, 0] and batch.values["label"].dtype == torch.int64
    assert batch.values["logits"].tolist() == logits[[3, 0]].tolist()
    moved = on_device(batch, "meta")
    assert {value.device.type for value in moved.values.values()} == {"meta"} and set(moved.values) == set(
        values
    )
    assert with_negatives().batch(np.array([0])).values == {}


def test_a_sample_contains_each_text_once() -> None:
    table = with_negatives()
    (all_of_it,) = table.sample(100, at_once=10)
    assert len(all_of_it.input_ids_BT) == 2, "only distinct texts"


def test_a_sample_is_the_same_at_every_call_and_sorted_by_length() -> None:
    first, again = (list(table().sample(20, at_once=8)) for _ in range(2))
    assert [len(tokens.input_ids_BT) for tokens in first] == [8, 8, 4]
    lengths = [length for tokens in first for length in tokens.attention_mask_BT.sum(1).tolist()]
    assert lengths == sorted(lengths) and len(set(lengths)) > 1
    for one, two in zip(first, again, strict=True):
        assert one.input_ids_BT.tolist() == two.input_ids_BT.tolist()


def test_teachers_of_two_dimensions_are_refused() -> None:
    rows = {"a": np.arange(3), "b": np.arange(3)}
    stores = {"a": Vectors(np.arange(3), 4), "b": Vectors(np.arange(3), 5)}
    with pytest.raises(BadInput, match="one dimension"):
        _ = TrainingTable(rows, {"a": Words(3), "b": Words(3)}, stores).teacher_dim


@each_row("world", [1, 2, 4])
def test_ranks_together_read_the_rows_of_one_process(monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    plan, rows = stage(accumulate=2, budget=8 * 30), table(100)
    monkeypatch.setattr("stillhouse.training.prefetch.world_size", lambda: world)
    seen = []
    for rank in range(world):
        monkeypatch.setattr("stillhouse.training.prefetch.rank", lambda rank=rank: rank)
        seen.append([batch.rows["text"].numpy() for batch in batches(plan, rows, "cpu", 5)])
    together = np.concatenate([np.concatenate(parts) for parts in zip(*seen, strict=True)])
    np.testing.assert_array_equal(together, Order(100, plan.seed).take(5 * 8, 25 * 8))


def test_a_batch_that_cannot_be_divided_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillhouse.training.prefetch.world_size", lambda: 3)
    with pytest.raises(BadInput, match="batch_size % "):
        check_shares(stage())


def test_a_live_teacher_may_read_tokens_of_its_own() -> None:
    rows = {"query": np.array([0, 1, 2]), "negatives": np.array([[1, 2], [2, 0], [0, 1]])}
    words, own = {name: Words(3) for name in rows}, {name: Words(3, seed=5) for name in rows}
    batch = TrainingTable(rows, words, {}, live_tokens=own).batch(np.array([2, 0]))
    for column in rows:
        ids = batch.live_tokens[column].input_ids_BT
        assert ids.tolist() == own[column].padded(rows[column][[2, 0]].reshape(-1)).input_ids_BT.tolist()
        assert ids.tolist() != batch.tokens[column].input_ids_BT.tolist()
    moved = on_device(batch, "meta").live_tokens
    assert {tokens.input_ids_BT.device.type for tokens in moved.values()} == {"meta"}
    assert TrainingTable(rows, words, {}).batch(np.array([0])).live_tokens == {}
