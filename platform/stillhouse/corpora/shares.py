"""A share of some rows, such that curves over the share differ by what is added alone."""

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.types import IntArray, ValueArray


def chosen(groups_N: ValueArray, fraction: float, seed: int = 0) -> IntArray:
    """Which rows a share holds, in their order, with the groups in their proportions.

    A smaller share of the same seed is part of a larger one. Every group keeps one row at least.

    Args:
        groups_N: The group of each row, such as its label.
        fraction: In (0, 1].
        seed: Of the choice.

    Raises:
        BadInput: ``fraction`` out of range, or no row.
    """
    require(0 < fraction <= 1, "0 < fraction <= 1", fraction=fraction)
    require(len(groups_N) > 0, "rows to choose from >= 1", rows=0)
    random, kept = np.random.default_rng(seed), []
    for group in np.unique(groups_N):
        shuffled = random.permutation(np.flatnonzero(groups_N == group))
        kept.append(shuffled[: max(1, round(fraction * len(shuffled)))])
    return np.sort(np.concatenate(kept))
