"""Which keys were seen before, of any number of keys, with bounded memory.

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
"""Keys of a run from which it is a file (4 MB), and from which it is not merged any more (256 MB)."""

Keys = npt.NDArray[np.uint64]
"""Keys as two numbers each, (N, 2)."""


class SeenKeys:
    """The keys so far, of 16 bytes each.

    Args:
        folder: On the disk that gets the files, which have no name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: list[Keys] = []

    def new(self, keys: bytes) -> npt.NDArray[np.bool_]:
        """Which of some keys are seen for the first time; of equal ones among them, the first.

        Args:
            keys: N keys one after another; they count as seen from now on.

        Returns:
            bool, (N,).
        """
        keys_N2 = np.frombuffer(keys, "<u8").reshape(-1, 2).astype(np.uint64)
        order = _order(keys_N2)
        sorted_N2 = keys_N2[order]
        fresh = np.ones(len(order), bool)
        fresh[1:] = (sorted_N2[1:] != sorted_N2[:-1]).any(axis=1)
        for run in self._runs:
            left = np.flatnonzero(fresh)
            fresh[left[_found(run, sorted_N2[left])]] = False
        self._add(sorted_N2[fresh])
        result = np.zeros(len(order), bool)
        result[order[fresh]] = True
        return result

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


def _found(run_R2: Keys, keys_N2: Keys) -> npt.NDArray[np.bool_]:
    """Which of some keys are in a run; both are sorted."""
    place = np.searchsorted(run_R2[:, 0], keys_N2[:, 0])
    found = np.zeros(len(keys_N2), bool)
    open_ = np.arange(len(keys_N2))
    while open_.size:
        inside = place[open_] < len(run_R2)
        open_ = open_[inside]
        there = run_R2[place[open_]]
        same = there[:, 0] == keys_N2[open_, 0]
        equal = same & (there[:, 1] == keys_N2[open_, 1])
        found[open_[equal]] = True
        # Keys whose first halves are equal lie beside each other.
        open_ = open_[same & ~equal]
        place[open_] += 1
    return found
