import numpy as np
import pytest

from stillhouse.core.errors import BadInput
from stillhouse.training.sampler import Order

BIG = {"plain": 100, "block": 16, "window": 4}


@pytest.mark.parametrize("options", [{}, BIG])
@pytest.mark.parametrize("rows", [7, 1000, 1003, 1024])
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
