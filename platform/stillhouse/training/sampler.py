"""The order of the examples: a pure function of (seed, epoch), so that resuming needs a position alone."""

from abc import ABC, abstractmethod

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.types import IntArray

PLAIN = 1_000_000


class ExampleOrder(ABC):
    """An endless walk over the rows of a table in shuffled windows, with random access to any part of it.

    Raises:
        BadInput: There are no rows.
    """

    def __init__(self, rows: int, seed: int) -> None:
        require(rows >= 1, "examples >= 1", examples=rows, remedy="No example has all of its vectors.")
        self.rows, self.seed = rows, seed
        self._cached: tuple[tuple[int, int], IntArray] | None = None

    def take(self, position: int, count: int) -> IntArray:
        """Return ``count`` rows from ``position`` on, counted over all epochs and across their ends."""
        parts = []
        while count > 0:
            epoch, window, offset = self._place(position)
            part = self._window(epoch, window)[offset : offset + count]
            parts.append(part)
            position, count = position + len(part), count - len(part)
        return np.concatenate(parts)

    @abstractmethod
    def _place(self, position: int) -> tuple[int, int, int]:
        """The epoch and the window of a position, and the offset in that window."""

    @abstractmethod
    def _shuffled(self, epoch: int, window: int) -> IntArray:
        """The rows of a window in the order in which they are read."""

    def _window(self, epoch: int, window: int) -> IntArray:
        if self._cached is None or self._cached[0] != (epoch, window):
            self._cached = None  # A window may be large: never hold two.
            self._cached = ((epoch, window), self._shuffled(epoch, window))
        return self._cached[1]


class Order(ExampleOrder):
    """An endless shuffled walk over the rows of a table with random access to any part of it.

    With up to ``plain`` rows an epoch is one permutation. In larger tables contiguous blocks of ``block``
    rows are shuffled, and the rows of ``window`` blocks are shuffled among themselves, so that the table is
    read in runs and no permutation of the whole table is ever built.
    """

    def __init__(
        self, rows: int, seed: int, *, plain: int = PLAIN, block: int = 4096, window: int = 64
    ) -> None:
        super().__init__(rows, seed)
        self.block = block
        self.span = rows if rows <= plain else block * window

    def _place(self, position: int) -> tuple[int, int, int]:
        epoch, offset = divmod(position, self.rows)
        return epoch, *divmod(offset, self.span)

    def _shuffled(self, epoch: int, window: int) -> IntArray:
        within = np.random.default_rng((self.seed, epoch, window))
        if self.span == self.rows:
            return within.permutation(self.rows)
        # The last block may be short; it keeps its position, so that every window but the last is full.
        whole = self.rows // self.block
        blocks = np.append(np.random.default_rng((self.seed, epoch)).permutation(whole), whole)
        first = window * self.span // self.block
        starts = blocks[first : first + self.span // self.block] * self.block
        rows = (starts[:, None] + np.arange(self.block)).reshape(-1)
        return within.permutation(rows[rows < self.rows])


class ShardOrder(ExampleOrder):
    """An endless shuffled walk over the rows of a table that needs few shards of it at a time.

    Every epoch permutes the shards, of which ``starts`` has the first rows, ascending from 0. Windows of
    ``together`` consecutive ones are read one after the other, and the rows of a window are permuted.
    """

    def __init__(self, starts: IntArray, rows: int, seed: int, together: int) -> None:
        super().__init__(rows, seed)
        assert together >= 1 and starts[0] == 0, "every row is in a shard, and every window has one"
        self.together = together
        self._runs_S2 = np.stack([starts, np.append(starts[1:], rows) - 1], axis=1)
        self._epoch: tuple[int, IntArray, IntArray] | None = None

    def runs(self, position: int, count: int) -> IntArray:
        """Return the shards of the window at a position and of the next one, or of all until ``count`` rows.

        Returns:
            The first and the last row of each shard, (N, 2), in the order of the epochs.
        """
        begins = [position, self._end_of_window(position)]
        while (after := self._end_of_window(begins[-1])) < position + count:
            begins.append(after)
        places = [self._place(begin) for begin in begins]
        return np.concatenate([self._runs_of(epoch, window) for epoch, window, _ in places])

    def _place(self, position: int) -> tuple[int, int, int]:
        epoch, offset = divmod(position, self.rows)
        ends = self._shards_of(epoch)[1]
        window = int(np.searchsorted(ends, offset, side="right"))
        return epoch, window, offset - (int(ends[window - 1]) if window else 0)

    def _end_of_window(self, position: int) -> int:
        epoch, window, _ = self._place(position)
        return epoch * self.rows + int(self._shards_of(epoch)[1][window])

    def _runs_of(self, epoch: int, window: int) -> IntArray:
        shards = self._shards_of(epoch)[0][window * self.together : (window + 1) * self.together]
        return self._runs_S2[shards]

    def _shards_of(self, epoch: int) -> tuple[IntArray, IntArray]:
        """The shards of an epoch in their order, and the number of rows at the end of each window."""
        if self._epoch is None or self._epoch[0] != epoch:
            shards = np.random.default_rng((self.seed, epoch)).permutation(len(self._runs_S2))
            ends = np.cumsum(self._runs_S2[shards, 1] - self._runs_S2[shards, 0] + 1)
            last = np.arange(self.together, len(ends) + self.together, self.together).clip(max=len(ends)) - 1
            self._epoch = (epoch, shards, ends[last])
        return self._epoch[1:]

    def _shuffled(self, epoch: int, window: int) -> IntArray:
        rows = np.concatenate([np.arange(first, last + 1) for first, last in self._runs_of(epoch, window)])
        np.random.default_rng((self.seed, epoch, window)).shuffle(rows)
        return rows
