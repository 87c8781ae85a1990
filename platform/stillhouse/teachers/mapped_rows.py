"""Rows of many memory-mapped arrays, gathered with one indexing operation.

A batch of random rows has one or two rows of each shard of a large store. Indexing shard by shard costs more
than the rows themselves, so all shards are viewed through one array that begins at the lowest of their
addresses and has one element per byte: the row that begins there. Only the beginnings of mapped rows are ever
read; the memory between the shards is not touched.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from stillhouse.core.types import IntArray

_ABSENT = -1
_Seen = tuple[npt.NDArray[np.int64], int, npt.NDArray[Any]]
"""The address of each array, the lowest of them, and the rows from there on, one per byte."""


class MappedRows:
    """Arrays of one width and type, added one by one.

    Args:
        arrays: Number of arrays.
        dim: Values per row.
        dtype: Type of a value.
    """

    def __init__(self, arrays: int, dim: int, dtype: str) -> None:
        self.dim, self.dtype = dim, np.dtype(dtype)
        self._row = np.dtype((np.void, dim * self.dtype.itemsize))
        self._held: dict[int, npt.NDArray[np.floating]] = {}
        self._first: npt.NDArray[np.floating] | None = None
        """The array with the lowest address, and where the one with the highest ends."""
        self._end = 0
        # One tuple, so that a thread that reads while another adds sees the state either before or after.
        self._seen: _Seen = (np.full(arrays, _ABSENT, np.int64), 0, np.empty(0, self._row))

    def absent(self, indices: IntArray) -> list[int]:
        """List the arrays among ``indices`` that were not added yet, each once."""
        return sorted({int(index) for index in indices[self._seen[0][indices] == _ABSENT]})

    def add(self, index: int, values_ND: npt.NDArray[np.floating]) -> None:
        """Add an array; it is kept alive as long as this object."""
        assert values_ND.dtype == self.dtype and values_ND.flags.c_contiguous
        self._held[index] = values_ND
        addresses = self._seen[0].copy()
        addresses[index] = _address(values_ND)
        if len(values_ND):
            begin, end = addresses[index], int(addresses[index]) + values_ND.nbytes
            self._first = values_ND if self._first is None or begin < _address(self._first) else self._first
            self._end = max(self._end, end)
        if self._first is None:
            self._seen = (addresses, 0, self._seen[2])
            return
        lowest = _address(self._first)
        rows = np.lib.stride_tricks.as_strided(
            self._first.view(self._row)[:, 0],
            (self._end - self._row.itemsize - lowest + 1,),
            (1,),
            writeable=False,
        )
        self._seen = (addresses, lowest, rows)

    def keep(self, indices: Collection[int]) -> None:
        """Let go of all arrays but some; nothing may be read meanwhile."""
        kept = {index: array for index, array in self._held.items() if index in indices}
        if len(kept) == len(self._held):
            return
        self._held, self._first, self._end = {}, None, 0
        self._seen = (np.full_like(self._seen[0], _ABSENT), 0, np.empty(0, self._row))
        for index, array in kept.items():
            self.add(index, array)

    def take(self, indices: IntArray, positions: IntArray) -> npt.NDArray[np.floating]:
        """Copy row ``positions[i]`` of array ``indices[i]``, (N, dim).

        The arrays must have been added, and the positions be inside them: neither is checked.
        """
        addresses, lowest, rows = self._seen
        offsets = addresses[indices] + positions * self._row.itemsize - lowest
        taken: npt.NDArray[np.floating] = rows[offsets].view(self.dtype).reshape(-1, self.dim)
        return taken


def _address(array: npt.NDArray[np.floating]) -> int:
    return int(array.__array_interface__["data"][0])
