"""The ids of all rows of a table, which need no memory however many there are."""

import numpy as np
import numpy.typing as npt

from stillhouse.core.types import IntArray

_NONE: IntArray = np.zeros(0, np.int64)


class EveryRow:
    """The ids of every row of a table but a few; read like an array of ids in ascending order, (N,).

    A thousand million ids are 8 GB as an array, which each trial and rank would hold.

    Args:
        rows: Number of rows of the table.
        lacking: Ids that are left out, ascending and distinct.
    """

    ndim = 1

    def __init__(self, rows: int, lacking: IntArray = _NONE) -> None:
        self._rows, self._lacking = rows, lacking
        self._kept_before = lacking - np.arange(len(lacking))

    def __len__(self) -> int:
        """The number of ids."""
        return self._rows - len(self._lacking)

    def __getitem__(self, places: IntArray) -> npt.NDArray[np.int64]:
        """Return the ids at some places.

        Raises:
            IndexError: If a place is negative or too large.
        """
        places = np.asarray(places, np.int64)
        if places.size and not (0 <= places.min() and places.max() < len(self)):
            raise IndexError(f"places must be in [0, {len(self)}), but got {places.min()}..{places.max()}")
        ids: npt.NDArray[np.int64] = places + np.searchsorted(self._kept_before, places, side="right")
        return ids

    def places_of(self, ids: IntArray) -> npt.NDArray[np.int64]:
        """Return how many ids are smaller than each of some."""
        places: npt.NDArray[np.int64] = ids - np.searchsorted(self._lacking, ids)
        return places

    def without(self, lacking: IntArray) -> "EveryRow":
        """The same without further rows; ids that are left out already may be among them."""
        return EveryRow(self._rows, np.union1d(self._lacking, lacking))


RowIds = IntArray | EveryRow
"""Ids of rows by example: an array, (N,) or (N, K), or all ids of a table."""
