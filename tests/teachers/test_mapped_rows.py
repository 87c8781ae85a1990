"""Rows gathered from many arrays by one indexing operation, in any order."""

import threading
import weakref

import numpy as np
import numpy.typing as npt
from rows import each_row

from stillhouse.teachers.mapped_rows import MappedRows


def arrays(dtype: str, *lengths: int) -> list[npt.NDArray[np.floating]]:
    random = np.random.default_rng(0)
    return [random.standard_normal((length, 5)).astype(dtype) for length in lengths]


@each_row("dtype", ["float16", "float32"])
@each_row("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_rows_are_returned_in_the_requested_order(dtype: str, order: tuple[int, ...]) -> None:
    given = arrays(dtype, 7, 1, 40, 3)
    mapped, added = MappedRows(4, 5, dtype), []
    for index in order:
        assert index in mapped.absent(np.array([index, index]))
        mapped.add(index, given[index])
        added.append(index)
        indices = np.array([added[0], added[-1], added[0]])
        positions = np.array([len(given[i]) - 1 for i in indices])
        gathered = mapped.take(indices, positions)
        assert gathered.dtype == given[0].dtype
        assert np.array_equal(gathered, [given[i][-1] for i in indices])
    pairs = [(index, row) for index, array in enumerate(given) for row in range(len(array))]
    np.random.default_rng(1).shuffle(pairs)
    indices, positions = np.array(pairs).T
    assert np.array_equal(mapped.take(indices, positions), [given[i][row] for i, row in pairs])
    assert mapped.absent(indices) == []


def test_an_empty_array_can_be_added() -> None:
    empty, full = arrays("float32", 0, 2)
    mapped = MappedRows(2, 5, "float32")
    mapped.add(0, empty)
    assert mapped.absent(np.array([0, 1])) == [1]
    mapped.add(1, full)
    assert np.array_equal(mapped.take(np.array([1]), np.array([1])), full[1:])


def test_rows_are_copies_and_the_arrays_are_kept_alive() -> None:
    mapped, (array,) = MappedRows(1, 5, "float32"), arrays("float32", 3)
    expected = array.copy()
    mapped.add(0, array)
    del array
    gathered = mapped.take(np.array([0, 0, 0]), np.arange(3))
    gathered += 1
    assert np.array_equal(mapped.take(np.array([0, 0, 0]), np.arange(3)), expected)


@each_row("kept", [(1, 3), (0,), (), (0, 1, 2, 3)])
def test_arrays_are_let_go(kept: tuple[int, ...]) -> None:
    mapped, given = MappedRows(4, 5, "float32"), arrays("float32", 7, 1, 40, 3)
    expected, seen = [array.copy() for array in given], []
    for index, array in enumerate(given):
        seen.append(weakref.ref(array))
        mapped.add(index, array)
    del array
    given.clear()
    mapped.keep(kept)
    assert mapped.absent(np.arange(4)) == [index for index in range(4) if index not in kept]
    assert [index for index in range(4) if seen[index]() is not None] == list(kept)
    for index in kept:
        assert np.array_equal(mapped.take(np.array([index]), np.array([0]))[0], expected[index][0])
    mapped.keep(())
    mapped.add(2, again := expected[2])
    assert np.array_equal(mapped.take(np.array([2]), np.array([39]))[0], again[39])


def test_concurrent_readers_never_see_a_partial_addition() -> None:
    given = arrays("float32", *range(1, 60))
    mapped, wrong = MappedRows(len(given), 5, "float32"), []
    mapped.add(0, given[0])
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            if not np.array_equal(mapped.take(np.zeros(4, np.int64), np.zeros(4, np.int64))[3], given[0][0]):
                wrong.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    for index, array in enumerate(given[1:], start=1):
        mapped.add(index, array)
    done.set()
    reader.join()
    assert not wrong
