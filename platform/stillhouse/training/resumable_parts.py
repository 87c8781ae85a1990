"""Long computations over many rows, written in parts: a killed process loses at most one part."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from stillhouse.core.artifacts import PARTS, remove_leftovers, whole_array, write_array
from stillhouse.core.types import ValueArray

Make = Callable[[list[int]], Iterable[tuple[int, ValueArray]]]
"""Maps the first rows of some parts to the parts, each with its first row, in any order."""


def in_parts(
    folder: Path,
    rows: int,
    rows_at_once: int,
    make: Make,
    progress: Callable[[int, int], None] | None = None,
) -> ValueArray:
    """Compute values of all rows, except those of existing undamaged parts. Call it under the folder's lock.

    Args:
        folder: The folder of the artifact; the parts are kept in a subfolder until `remove_unfinished`.
        rows: Number of rows.
        rows_at_once: Rows per part.
        make: Computes the missing parts; not called if there are none.
        progress: Called with the number of rows done and the total.

    Returns:
        (rows, …), the parts in the order of their rows.
    """
    parts = folder / PARTS
    remove_leftovers(parts)
    paths = {start: parts / f"{start:012}.npy" for start in range(0, rows, rows_at_once)}
    missing = [start for start, path in paths.items() if whole_array(path) is None]
    left = _rows_of(missing, rows, rows_at_once)
    for start, part in make(missing) if missing else ():
        write_array(paths[start], part)
        left -= _rows_of([start], rows, rows_at_once)
        if progress:
            progress(rows - left, rows)
    return np.concatenate([np.load(path) for path in paths.values()])


def _rows_of(starts: list[int], rows: int, rows_at_once: int) -> int:
    return sum(min(rows_at_once, rows - start) for start in starts)
