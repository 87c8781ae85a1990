import numpy as np
import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.training.sampler import Order, ShardOrder

BIG = {"plain": 100, "block": 16, "window": 4}


@each_row("options", [{}, BIG])
@each_row("rows", [7, 1000, 1003, 1024])
def test_an_epoch_contains_every_row_once(rows: int, options: dict[str, int]) -> None:
    order = Order(rows, 5, **options)
    for epoch in range(3):
        assert sorted(order.take(epoch * rows, rows)) == list(range(rows))


@pytest.mark.parametrize("options", [{}, BIG])
def test_any_slice_of_an_epoch_is_reproducible(options: dict[str, int]) -> None:
    whole = Order(517, 5, **options).take(0, 2000)
    order = Order(517, 5, **options)
    for position in (1999, 0, 516, 517, 300, 1033):
        count = min(64, 2000 - position)
        np.testing.assert_array_equal(order.take(position, count), whole[position : position + count])


@pytest.mark.parametrize("options", [{}, BIG])
def test_seed_and_epoch_change_the_order(options: dict[str, int]) -> None:
    order = Order(500, 5, **options)
    assert not np.array_equal(order.take(0, 500), order.take(500, 500))
    assert not np.array_equal(order.take(0, 500), Order(500, 6, **options).take(0, 500))
    assert not np.array_equal(order.take(0, 500), np.arange(500))


def test_the_seed_changes_which_blocks_a_big_table_mixes() -> None:
    windows = [{*(Order(1000, seed, **BIG).take(0, 64) // 16)} for seed in range(5)]
    assert len({frozenset(blocks) for blocks in windows}) == 5


def test_batches_wrap_around_at_the_end_of_an_epoch() -> None:
    order = Order(10, 0)
    batch = order.take(8, 4)
    np.testing.assert_array_equal(batch, [*order.take(0, 10)[8:], *order.take(10, 2)])


def test_a_batch_of_a_big_table_mixes_blocks() -> None:
    order = Order(1000, 1, **BIG)
    assert len(np.unique(order.take(0, 32) // 16)) > 2
    window = order.take(0, 64)
    assert len(np.unique(window // 16)) == 4, "a window is whole blocks"


def test_no_rows_are_refused() -> None:
    with pytest.raises(BadInput, match="examples >= 1"):
        Order(0, 0)


STARTS = np.array([0, 10, 30, 33, 70, 90, 91])
"""Seven shards of 100 rows, of different sizes."""


def sharded(seed: int = 5, together: int = 2) -> ShardOrder:
    return ShardOrder(STARTS, 100, seed, together)


def shards_of(rows: np.ndarray) -> set[int]:
    return set((np.searchsorted(STARTS, rows, side="right") - 1).tolist())


@each_row("together", [1, 2, 3, 7, 50])
def test_an_epoch_by_shards_contains_every_row_once(together: int) -> None:
    order = sharded(together=together)
    for epoch in range(3):
        assert sorted(order.take(epoch * 100, 100)) == list(range(100))


def test_rows_of_few_shards_are_mixed_at_a_time() -> None:
    order, sizes = sharded(), np.diff(np.append(STARTS, 100))
    orders = []
    for epoch in range(3):
        left, windows = order.take(epoch * 100, 100), []
        while len(left):
            met = list(dict.fromkeys((np.searchsorted(STARTS, left, side="right") - 1).tolist()))[:2]
            window, left = np.split(left, [int(sizes[met].sum())])
            assert shards_of(window) == set(met), "a shard is read to its end with one other"
            assert len(window) < 4 or sorted(window) != list(window)
            windows.append(frozenset(met))
        assert [len(met) for met in windows] == [2, 2, 2, 1]
        orders.append(windows)
    assert orders[0] != orders[1] != orders[2], "another order of shards in every epoch"
    assert not np.array_equal(order.take(0, 100), sharded(seed=6).take(0, 100))


def test_any_slice_of_an_order_by_shards_is_reproducible() -> None:
    whole = sharded().take(0, 500)
    for position in (499, 0, 99, 100, 77, 250):
        order = sharded()
        count = min(30, 500 - position)
        np.testing.assert_array_equal(order.take(position, count), whole[position : position + count])


@each_row("count", [1, 8, 60, 150])
def test_what_is_read_next_is_known(count: int) -> None:
    order = sharded()
    for position in range(0, 300, 7):
        runs = order.runs(position, count)
        told = [int(np.searchsorted(STARTS, first)) for first, _ in runs]
        ends = np.append(STARTS[1:], 100) - 1
        assert all(
            first == STARTS[at] and last == ends[at] for at, (first, last) in zip(told, runs, strict=True)
        )
        read = shards_of(order.take(position, count))
        assert read <= set(told)
        # The window of a position, and the next one, of which the last of an epoch has one shard.
        assert count > 8 or 2 <= len(told) <= 4
        assert set(told[:2]) & read, "what is read first comes first"


def test_the_golden_order_by_shards() -> None:
    assert sharded(seed=0).take(95, 12).tolist() == GOLDEN


GOLDEN = [16, 15, 12, 17, 28, 61, 15, 43, 51, 46, 35, 48]
