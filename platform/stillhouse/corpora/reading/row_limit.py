"""The number of rows that is taken of a source: one rule for every kind of data and form of file.

Without a number (None or 0) everything is read. A number N takes N distinct rows of the whole source, those
with the smallest hashes, whatever their order; a larger number adds rows to those of a smaller one.
Of a stream (``hf:``, MS MARCO's triples), whose end may be far away, it takes the first N. ``pydocs`` alone
has sizes of its own.
"""

import itertools
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from stillhouse.corpora.reading.rows import Rejected
from stillhouse.corpora.seen_keys import SeenKeys

T = TypeVar("T")
_IN_MEMORY = 1 << 26
_SPARE = 1024
_COMPARED = 16_384
"""Rows that are compared with those before at once."""


class Taking(Generic[T]):
    """The rows of one source that its count takes, and what there is to say of the others.

    Args:
        count: Number of rows; None or 0 takes all.
        stream: Whether the source is a stream, of which the first rows are taken.
        distinct: Whether equal rows count once.
        by_hash: Whether rows are in the order of their hashes even where none is left out.

    Attributes:
        read: Number of rows that have been read.
        taken: Number of rows that have been passed on.
        partial: Whether rows were left out because of the count.
    """

    def __init__(
        self, count: int | None, *, stream: bool = False, distinct: bool = True, by_hash: bool = False
    ) -> None:
        self.count, self.stream, self.distinct, self.by_hash = count or 0, stream, distinct, by_hash
        self.read, self.taken, self.partial = 0, 0, False

    def of(self, rows: Iterable[T | Rejected], key: Callable[[T], bytes]) -> Iterator[T | Rejected]:
        """Yield the rows that are taken: the one with the smallest hash first where some are left out.

        Of a stream no more rows are read than are needed. Rejected rows are passed on, and do not count.
        """
        drawn = _Drawn[T](self.count, self.distinct) if self.count and not self.stream else None
        seen: set[bytes] = set()
        for row in rows:
            if isinstance(row, Rejected):
                yield row
                continue
            self.read += 1
            if drawn is not None:
                drawn.add(row, _hash(key(row)))
                continue
            self.taken += 1
            yield row
            if self.count:
                seen.add(_hash(key(row)) if self.distinct else b"%d" % self.read)
                if len(seen) == self.count:
                    self.partial = True
                    return
        if drawn is not None:
            for row in drawn.rows(self.by_hash):
                self.taken += 1
                yield row
            self.partial = drawn.left_out

    def said(self, kept: int) -> str:
        """Say how the count has drawn the rows that are kept; empty where it has left none out."""
        if self.partial and self.stream:
            return f"{kept:,} rows kept, the first of the stream (the rest was not read)"
        return f"{kept:,} of {self.read:,} rows, drawn by hash" if self.partial else ""


class _Drawn(Generic[T]):
    """The rows with the smallest hashes so far. The rows lie in a file, memory holds 16 bytes for each."""

    def __init__(self, count: int, distinct: bool) -> None:
        self._count, self._distinct = count, distinct
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)
        self._highest = b"\xff" * 8
        self.left_out = False
        self._hashes = bytearray()
        self._starts: list[int] = []

    def add(self, row: T, hashed: bytes) -> None:
        """Keep a row unless so many have smaller hashes."""
        if hashed > self._highest:
            self.left_out = True
            return
        self._hashes += hashed
        self._starts.append(self._file.tell())
        pickle.dump(row, self._file)
        if len(self._starts) >= 2 * self._count + _SPARE:
            self._prune()

    def rows(self, by_hash: bool) -> Iterator[T]:
        """The rows, the one with the smallest hash first; else in their own order where none was left out."""
        self._prune()
        for start in self._starts if by_hash or self.left_out else sorted(self._starts):
            self._file.seek(start)
            yield pickle.load(self._file)
        self._file.close()

    def _prune(self) -> None:
        """Forget all but the rows with the smallest hashes; of equal ones the first stays."""
        hash_N: npt.NDArray[np.uint64] = np.frombuffer(bytes(self._hashes), ">u8").astype(np.uint64)
        order = np.argsort(hash_N, kind="stable")
        if self._distinct:
            order = np.unique(hash_N, return_index=True)[1]
        self.left_out |= len(order) > self._count
        order = order[: self._count]
        self._starts = [self._starts[at] for at in order]
        self._hashes = bytearray(hash_N[order].astype(">u8").tobytes())
        if len(order) == self._count:
            self._highest = bytes(self._hashes[-8:])


class Spool(Generic[T]):
    """Rows that are gone through several times, one after another, in a file: memory holds none of them."""

    def __init__(self, rows: Iterable[T]) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)
        self._sizes: list[int] = []
        for part in in_blocks(rows, _SPARE):
            pickle.dump(part, self._file)
            self._sizes.append(len(part))

    def __len__(self) -> int:
        """The number of rows."""
        return sum(self._sizes)

    def __iter__(self) -> Iterator[T]:
        """The rows in their order."""
        self._file.seek(0)
        for _ in self._sizes:
            yield from pickle.load(self._file)


def distinct(rows: Iterable[T]) -> Iterator[T]:
    """Yield the first of equal rows, with bounded memory."""
    seen = SeenKeys(Path(tempfile.gettempdir()))
    for part in in_blocks(rows, _COMPARED):
        keys = (blake2b(repr(row).encode(), digest_size=16).digest() for row in part)
        yield from itertools.compress(part, seen.new(b"".join(keys)))


def in_blocks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Split into lists of ``size`` items; the last may be shorter."""
    remaining = iter(items)
    while block := list(itertools.islice(remaining, size)):
        yield block


def smallest(texts: Iterable[str], count: int) -> list[int]:
    """Places of the texts with the smallest hashes, so many of them, in their own order."""
    order = sorted((_hash(text.encode()), at) for at, text in enumerate(texts))
    return sorted(at for _, at in order[:count])


def _hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=8).digest()
