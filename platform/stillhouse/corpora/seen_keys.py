"""A set of any number of keys with bounded memory, which gives each key a number.

The keys are kept in sorted runs: a batch of new ones is a run, and runs of similar size are merged, so that
there are few and each key is moved a few times only. Large runs are files, which are searched through memory
maps and no longer merged from a limit on. A batch is looked up in every run, in sorted order.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_ON_DISK = 1 << 18
_MERGED = 1 << 24
"""Keys of a run from which it is a file (6 MB), and from which it is not merged any more (384 MB)."""

Keys = npt.NDArray[np.uint64]
"""Keys as two numbers each, (N, 2), or with a third, the number that a key got, (N, 3)."""


class SeenKeys:
    """The keys so far, of 16 bytes each; large runs are files without a name, on the disk of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: list[Keys] = []
        self.count = 0

    def new(self, keys: bytes) -> npt.NDArray[np.bool_]:
        """Return which of N keys, one after another, are seen first now, (N,); of equal ones, the first."""
        return self.numbers(keys)[1]

    def numbers(self, keys: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Number N keys by when they were first seen, from 0 on: int64 (N,), and the result of `new`."""
        keys_N2 = np.frombuffer(keys, "<u8").reshape(-1, 2).astype(np.uint64)
        order = _order(keys_N2)
        sorted_N2 = keys_N2[order]
        first = np.ones(len(order), bool)
        first[1:] = (sorted_N2[1:] != sorted_N2[:-1]).any(axis=1)
        keys_D2, at_D = sorted_N2[first], order[first]
        number_D = np.full(len(keys_D2), -1)
        for run in self._runs:
            left = np.flatnonzero(number_D < 0)
            place = _places(run, keys_D2[left])
            number_D[left[place >= 0]] = run[place[place >= 0], 2]
        fresh = np.flatnonzero(number_D < 0)
        number_D[fresh[np.argsort(at_D[fresh])]] = self.count + np.arange(len(fresh))
        self.count += len(fresh)
        self._add(np.column_stack([keys_D2[fresh], number_D[fresh].astype(np.uint64)]))
        new_N, number_N = np.zeros(len(order), bool), np.empty(len(order), np.int64)
        new_N[at_D[fresh]] = True
        number_N[order] = number_D[np.cumsum(first) - 1]
        return number_N, new_N

    def _add(self, run: Keys) -> None:
        """Add a sorted run, and merge it with those before it that are not much larger."""
        while self._runs and len(self._runs[-1]) < 2 * len(run) and len(run) < _MERGED:
            both = np.concatenate([self._runs.pop(), run])
            run = both[_order(both)]
        if len(run):
            self._runs.append(self._kept(run))

    def _kept(self, run: Keys) -> Keys:
        if len(run) < _ON_DISK:
            return run
        with tempfile.TemporaryFile(dir=self._folder) as file:
            run.tofile(file)
            file.flush()
            # The file has no name: its bytes are there until nothing maps them.
            return np.memmap(file, np.uint64, "r", shape=run.shape)


def _order(keys_N2: Keys) -> npt.NDArray[np.int64]:
    """The order that sorts keys; equal ones keep theirs."""
    order: npt.NDArray[Any] = np.lexsort((keys_N2[:, 1], keys_N2[:, 0]))
    return order


def _places(run_R3: Keys, keys_N2: Keys) -> npt.NDArray[np.int64]:
    """Return the places of some keys in a run, -1 for those that are not in it; both are sorted."""
    place = np.searchsorted(run_R3[:, 0], keys_N2[:, 0])
    found = np.full(len(keys_N2), -1)
    open_ = np.arange(len(keys_N2))
    while open_.size:
        inside = place[open_] < len(run_R3)
        open_ = open_[inside]
        there = run_R3[place[open_]]
        same = there[:, 0] == keys_N2[open_, 0]
        equal = same & (there[:, 1] == keys_N2[open_, 1])
        found[open_[equal]] = place[open_[equal]]
        # Keys whose first halves are equal lie beside each other.
        open_ = open_[same & ~equal]
        place[open_] += 1
    return found
