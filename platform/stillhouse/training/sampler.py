"""The order of the examples: a pure function of (seed, epoch), so that resuming needs a position alone."""

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.types import IntArray

PLAIN = 1_000_000


class Order:
    """An endless shuffled walk over the rows of a table with random access to any part of it.

    With up to ``plain`` rows an epoch is one permutation. In larger tables contiguous blocks are shuffled,
    and the rows of a window of blocks are shuffled among themselves, so that the table is read in runs and no
    permutation of the whole table is ever built.

    Args:
        rows: Number of rows of the table.
        seed: Seed of the shuffling.
        plain: Number of rows of the largest table that is permuted row by row.
        block: Number of rows that are read together.
        window: Number of blocks whose rows are mixed.
    """

    def __init__(
        self, rows: int, seed: int, *, plain: int = PLAIN, block: int = 4096, window: int = 64
    ) -> None:
        require(rows >= 1, "examples >= 1", examples=rows, remedy="No example has all of its vectors.")
        self.rows, self.seed, self.block = rows, seed, block
        self.span = rows if rows <= plain else block * window
        self._cached: tuple[tuple[int, int], IntArray] | None = None

    def take(self, position: int, count: int) -> IntArray:
        """Return ``count`` rows from ``position`` on, counted over all epochs and across their ends."""
        parts = []
        while count > 0:
            epoch, offset = divmod(position, self.rows)
            window, start = divmod(offset, self.span)
            part = self._window(epoch, window)[start : start + count]
            parts.append(part)
            position, count = position + len(part), count - len(part)
        return np.concatenate(parts)

    def _window(self, epoch: int, window: int) -> IntArray:
        if self._cached is None or self._cached[0] != (epoch, window):
            self._cached = ((epoch, window), self._shuffled(epoch, window))
        return self._cached[1]

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
