"""Batches by length: every text as often as before, little padding, the same for any resumption and ranks."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from metrics_lines import read_metrics
from rows import each_row
from stand_ins import (  # type: ignore[import-not-found]
    SHARD_ROWS,
    Tiny,
    Vectors,
    Words,
    dev,
    stage,
    table,
    tensors,
    weight_figure,
)
from torch.multiprocessing.spawn import start_processes

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.distributed import end_rank
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.objectives.alignment import Alignment
from stillhouse.objectives.contrasts import ContrastiveDistillation
from stillhouse.objectives.matching import Regression
from stillhouse.training.batching import Batching, check_batching, check_sharding
from stillhouse.training.fit import fit
from stillhouse.training.prefetch import batches, check_shares
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.sampler import Order
from stillhouse.training.table import EveryRow, TrainingTable
from stillhouse.values.data import Examples, Given, Model, Store
from stillhouse.values.stage import Stage

pytestmark = pytest.mark.usefixtures("one_thread", "bare_encoder")

LONGEST = 40
TOKENS = 512
WAYS: list[dict[str, int]] = [
    {"length_window": 80},
    {"batch_tokens": TOKENS},
    {"batch_tokens": TOKENS, "length_window": 80},
]
SHARDED: list[dict[str, int]] = [{"shard_window": 2, **ways} for ways in ({}, WAYS[0], WAYS[2])]


def long_table(rows: int = 200) -> TrainingTable:
    """Texts of 2 to 40 tokens, most of them short."""
    ids, words = np.arange(rows), Words(rows)
    random = np.random.default_rng(4)
    words.lengths = np.minimum(2 + random.geometric(0.15, rows), LONGEST)
    words.ids = random.integers(1, 50, (rows, LONGEST))
    return TrainingTable({"text": ids}, {"text": words}, {"text": Vectors(ids)})


def plan_of(**changes: Any) -> Stage:
    regression = {"objective": spec(Regression), "student": spec(Tiny, dropout=0.2), "max_length": LONGEST}
    made: Stage = stage(**{**regression, **changes})
    return made


def read(plan: Stage, rows: TrainingTable) -> list[np.ndarray[Any, Any]]:
    batching = Batching(plan, rows)
    return [batching.rows(step) for step in range(batching.steps)]


def padding(made: list[Any], rows: TrainingTable) -> float:
    """Share of padding where each batch is padded to its longest text."""
    lengths = rows.lengths_of(np.arange(len(rows)))
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in made)
    return 1 - sum(int(lengths[batch].sum()) for batch in made) / padded


@each_row("ways", WAYS)
def test_every_text_is_read_as_often_as_without(ways: dict[str, int]) -> None:
    # 480 examples of 200 rows: two epochs and two fifths of a third one.
    rows, plan = long_table(), plan_of(**ways)
    plain, made = read(plan_of(), rows), read(plan, rows)
    assert Counter(np.concatenate(made).tolist()) == Counter(np.concatenate(plain).tolist())
    assert [row for batch in made for row in batch] != [row for batch in plain for row in batch] or not (
        ways.get("length_window")
    )
    batching = Batching(plan, rows)
    seen = np.cumsum([len(batch) for batch in made])
    assert [batching.examples_after(step) for step in range(batching.steps + 1)] == [0, *seen]
    assert seen[-1] == plan.examples_seen == 480


def test_batches_of_a_window_have_similar_lengths_and_come_in_random_order() -> None:
    rows, plan = long_table(), plan_of(length_window=80)
    made, order = read(plan, rows), Order(200, plan.seed)
    assert [len(batch) for batch in made] == [8] * 60
    for window in range(6):
        batches_ = made[window * 10 : window * 10 + 10]
        whole = order.take(window * 80, 80)
        assert sorted(np.concatenate(batches_)) == sorted(whole), "windows follow the order of the examples"
        spans = sorted((int(rows.lengths_of(b).min()), int(rows.lengths_of(b).max())) for b in batches_)
        assert all(one[1] <= two[0] for one, two in pairwise(spans)), "no overlap"
        first = [int(rows.lengths_of(b).min()) for b in batches_]
        assert first != sorted(first) and first != sorted(first, reverse=True)
    assert padding(made, rows) < 0.4 * padding(read(plan_of(), rows), rows)
    assert [b.tolist() for b in read(replace(plan, seed=4), rows)] != [b.tolist() for b in made]


GOLDEN = [[13, 7, 9, 19, 2, 20, 0, 14], [22, 3, 12, 17, 18, 1, 6, 21], [8, 5, 4, 10, 11, 15, 16, 23]]


def test_the_golden_order() -> None:
    rows = long_table(24)
    made = read(plan_of(budget=24, length_window=24, seed=0), rows)
    order = Order(24, 0).take(0, 24)
    by_length = [int(row) for row in order[np.argsort(rows.lengths_of(order), kind="stable")]]
    parts = [by_length[0:8], by_length[8:16], by_length[16:24]]
    assert [batch.tolist() for batch in made] == [
        parts[at] for at in np.random.default_rng((0, 7, 0)).permutation(3)
    ]
    assert [batch.tolist() for batch in made] == GOLDEN


@pytest.mark.parametrize("window", [0, 80])
def test_a_batch_has_as_many_texts_as_fit(window: int) -> None:
    rows, plan = long_table(), plan_of(batch_tokens=TOKENS, length_window=window)
    made = read(plan, rows)
    sizes = [len(batch) * int(rows.lengths_of(batch).max()) for batch in made]
    assert max(sizes) <= TOKENS and all(len(batch) % 8 == 0 for batch in made)
    assert len({len(batch) for batch in made}) > 2
    assert len(made) < 60 * 0.7, "fewer steps than batches of eight texts"
    if window:
        without = read(plan_of(batch_tokens=TOKENS), rows)
        assert padding(made, rows) < 0.6 * padding(without, rows) and len(made) < len(without)
    else:
        # No batch could have had the texts of the next one too.
        order = np.concatenate(made)
        assert order.tolist() == Order(200, plan.seed).take(0, 480).tolist()
        for one, two in pairwise(made):
            longest = int(rows.lengths_of(np.concatenate([one, two[:8]])).max())
            assert (len(one) + 8) * longest > TOKENS


@each_row("ways", WAYS + SHARDED)
def test_any_step_is_at_random_access(ways: dict[str, int]) -> None:
    rows, plan = long_table(), plan_of(**ways)
    made, batching = read(plan, rows), Batching(plan, rows)
    for step in np.random.default_rng(0).permutation(batching.steps):
        np.testing.assert_array_equal(batching.rows(int(step)), made[step])


@each_row("ways", WAYS + SHARDED)
@each_row("world", [1, 2, 4])
def test_ranks_together_read_the_batch_of_one_process(
    monkeypatch: pytest.MonkeyPatch, world: int, ways: dict[str, int]
) -> None:
    rows, plan = long_table(), plan_of(accumulate=2, **ways)
    monkeypatch.setattr("stillhouse.training.prefetch.world_size", lambda: world)
    seen = []
    for rank in range(world):
        monkeypatch.setattr("stillhouse.training.prefetch.rank", lambda rank=rank: rank)
        seen.append([batch.rows["text"].numpy() for batch in batches(plan, rows, "cpu", 5)])
    assert len({tuple(map(len, parts)) for parts in seen}) == 1, "all ranks have equal numbers of texts"
    together = [np.concatenate(parts) for parts in zip(*seen, strict=True)]
    steps = [np.concatenate(pair) for pair in zip(together[::2], together[1::2], strict=True)]
    for one, two in zip(steps, read(plan, rows)[5:], strict=True):
        np.testing.assert_array_equal(one, two)


@each_row("ways", WAYS + SHARDED)
def test_interrupted_at_any_step_equals_uninterrupted(tmp_path: Path, ways: dict[str, int]) -> None:
    plan, rows = plan_of(dev=dev(), evaluate_every=160, **ways), long_table()
    fit(plan, rows, tmp_path / "straight", evaluate=weight_figure)
    for round_ in range(50):
        wait = iter([False] * (round_ % 7) + [True])
        try:
            fit(plan, rows, tmp_path / "broken", evaluate=weight_figure, stop_requested=lambda: next(wait))  # noqa: B023
            break
        except Interrupted:
            continue
    assert round_ > 3
    straight, broken = (read_manifest(tmp_path / name) for name in ("straight", "broken"))
    assert broken["weights_sha256"] == straight["weights_sha256"]
    assert timeless(tmp_path / "broken") == timeless(tmp_path / "straight")
    made = read(plan, rows)
    assert straight["steps"] == len(made) and straight["examples"] == 480
    points = straight["evaluations"]
    assert [point["examples"] for point in points] == [
        sum(len(batch) for batch in made[: point["step"]]) for point in points
    ]
    assert len(points) == 3 and points[-1]["step"] == len(made)


def timeless(folder: Path) -> list[str]:
    lines = read_metrics(folder / "metrics.jsonl")
    for line in lines:
        line.pop("time")
        line["metrics"].pop("examples_per_second", None)
    return [json.dumps(line) for line in lines]


def without_dropout(ways: dict[str, int]) -> Stage:
    return plan_of(student=spec(Tiny, dropout=0.0), **ways)


def worker(number: int, folder: str) -> None:
    """One rank: train with each way of making batches."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=number, world_size=2)
    for at, ways in enumerate(WAYS + SHARDED):
        fit(without_dropout(ways), long_table(), Path(folder) / f"ranks-{at}")
    end_rank()


def test_two_ranks_equal_one_process(tmp_path: Path) -> None:
    start_processes(worker, args=(str(tmp_path),), nprocs=2, start_method="fork")  # type: ignore[no-untyped-call]
    for at, ways in enumerate(WAYS + SHARDED):
        fit(without_dropout(ways), long_table(), tmp_path / f"alone-{at}")
        two, one = (read_manifest(tmp_path / f"{who}-{at}") for who in ("ranks", "alone"))
        assert (two["steps"], two["examples"], two["workers"]) == (one["steps"], one["examples"], 2)
        for file in ("student", "objective"):
            trained, alone = (
                tensors(tmp_path / f"{who}-{at}" / f"{file}.safetensors") for who in ("ranks", "alone")
            )
            for name, value in alone.items():
                torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-5)


def test_batches_by_length_are_part_of_the_identity_only_where_they_are_made() -> None:
    assert plan_of(batch_tokens=0, length_window=0).fingerprint == plan_of().fingerprint
    names = {plan_of(**ways).fingerprint for ways in [{}, *WAYS, {"batch_tokens": 320}]}
    assert len(names) == 5


def test_what_cannot_be_divided_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"batch_tokens >= 8 \* max_length.*give 320 or more tokens"):
        plan_of(batch_tokens=319)
    with pytest.raises(BadInput, match="length_window >= 0"):
        plan_of(length_window=-1)
    with pytest.raises(BadInput, match="shard_window >= 0"):
        plan_of(shard_window=-1)
    with pytest.raises(BadInput, match="accumulate divides 8"):
        plan_of(batch_tokens=TOKENS, batch_size=12, accumulate=3)
    monkeypatch.setattr("stillhouse.training.prefetch.world_size", lambda: 3)
    with pytest.raises(BadInput, match=r"8 % \(workers \* accumulate\) = 0 with batch_tokens"):
        check_shares(plan_of(batch_tokens=TOKENS))


@each_row("ways", SHARDED)
def test_stores_are_told_what_a_step_reads_before_it_is_read(ways: dict[str, int]) -> None:
    rows, plan = long_table(), plan_of(**ways)
    (store,) = rows.stores.values()
    assert isinstance(store, Vectors)
    for at, batch in enumerate(batches(plan, rows, "cpu", 7)):
        expected = store.expected[at]
        shards = {first // SHARD_ROWS for first, _ in expected}
        assert all([first, last] == [first, min(first + SHARD_ROWS, 200) - 1] for first, last in expected)
        assert shards >= set((batch.rows["text"].numpy() // SHARD_ROWS).tolist())
        assert len(shards) <= 4 if len(ways) == 1 else len(shards) <= 6, "few shards at once"
    assert at + 7 == Batching(plan, rows).steps - 1
    assert len({tuple(map(tuple, each)) for each in store.expected}) >= 4, "windows change"
    read_plain = long_table()
    assert list(batches(plan_of(), read_plain, "cpu", 58)) and not read_plain.stores["text"].expected  # type: ignore[attr-defined]


def test_windows_of_shards_count_examples_that_have_vectors() -> None:
    vectors = Vectors(np.arange(200))
    vectors.lacking = np.array([0, 3, 31, 60, *range(90, 120)])
    rows = TrainingTable({"text": EveryRow(200)}, {"text": Words(200)}, {"text": vectors})
    assert rows.shard_starts().tolist() == [0, 28, 57, 86, 116, 146]
    assert rows.rows["text"][rows.shard_starts()].tolist() == [1, 30, 61, 120, 150, 180]
    rows.expect(np.array([[28, 56], [165, 165]]))
    assert vectors.expected == [[[30, 59], [199, 199]]]
    plan = plan_of(shard_window=2)
    assert set(np.concatenate(read(plan, rows)).tolist()) == set(range(166))


def test_windows_of_shards_are_refused_where_rows_are_chosen() -> None:
    texts = plan_of(shard_window=2).examples.columns["text"]
    store = {"text": Store(texts, Model("a", "0" * 64))}
    check_sharding(plan_of(shard_window=2, stores=store))
    with pytest.raises(BadInput, match=r"must have a stage that reads a teacher's vectors.*\['distil'\]"):
        check_sharding(plan_of(shard_window=2))
    chosen = Examples({"text": texts}, Given("0" * 64))
    with pytest.raises(BadInput, match=r"must be of all rows .*stage='distil'"):
        check_sharding(plan_of(shard_window=2, stores=store, examples=chosen))


@each_row("ways", WAYS)
def test_a_loss_that_compares_the_texts_of_a_batch_is_refused(ways: dict[str, int]) -> None:
    same = {"student": spec(Tiny, dim=6), **ways}
    check_batching(plan_of(objective=spec(Regression), **same), 6)
    check_batching(plan_of(objective=spec(Alignment, cosine_weight=1.0), **same), 6)
    for objective, reason in (
        (spec(Alignment, relational_weight=2.0), "relational_weight compare"),
        (spec(Alignment, spread_weight=2.0), "spread_weight compare"),
        (spec(ContrastiveDistillation), "do not say that they do not"),
    ):
        with pytest.raises(BadInput, match=f"each text counts by itself, but the stage distil .*{reason}"):
            check_batching(plan_of(objective=objective, **same), 6)
    with pytest.raises(BadInput, match=r"must have a stage on plain text, but got stages=\['distil'\]"):
        check_batching(plan_of(objective=spec(Regression)), 6)
    pairs = plan_of(**same)
    pairs = replace(pairs, examples=replace(pairs.examples, columns={"a": 1, "b": 2}, text_role=""))  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="batches by length must be of single texts"):
        check_batching(pairs, 6)


def test_lengths_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = table(50)
    chosen = TrainingTable({"text": np.array([7, 3, 3])}, rows.tokens, rows.stores)
    assert chosen.lengths_of(np.arange(3)).tolist() == rows.lengths_of(np.array([7, 3, 3])).tolist()
