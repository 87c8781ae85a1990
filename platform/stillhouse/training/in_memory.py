"""Columns of a training table that are in memory, to measure training without a token table or a store."""

from collections.abc import Sequence

import numpy as np

from stillhouse.core.tokenizing import FastTokenizer, pad
from stillhouse.core.types import FloatArray, IntArray, Tokens


class MemoryTokens:
    """Token ids of a few texts.

    Args:
        tokenizer: Cuts the texts.
        texts: The texts; row r is the text at position r.
    """

    def __init__(self, tokenizer: FastTokenizer, texts: Sequence[str]) -> None:
        self._ids, offsets = tokenizer(list(texts))
        self._starts, self._lengths, self._pad_id = offsets[:-1], np.diff(offsets), tokenizer.pad_id

    def lengths_of(self, rows: IntArray) -> IntArray:
        """Return the number of tokens of some rows."""
        return self._lengths[rows]

    def padded(self, rows: IntArray) -> Tokens:
        """Return the tokens of some rows, flattened, as a batch."""
        rows = np.asarray(rows).reshape(-1)
        return pad(self._ids, self._starts[rows], self._lengths[rows], self._pad_id)


class RandomVectors:
    """Unit vectors of random directions, the same for every instance of a shape.

    Args:
        rows: Number of vectors.
        dim: Their dimension.
    """

    def __init__(self, rows: int, dim: int) -> None:
        self.lacking: IntArray = np.empty(0, np.int64)
        self.dim = dim
        drawn = np.random.default_rng(0).standard_normal((rows, dim), dtype=np.float32)
        self._vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        self.starts: IntArray = np.zeros(1, np.int64)

    def expect(self, rows_N2: IntArray) -> None:
        """Do nothing: all vectors are here."""

    def gather(self, rows: IntArray) -> FloatArray:
        """Return the vectors of some rows."""
        vectors: FloatArray = self._vectors[rows]
        return vectors
