"""Shares of rows, and a number divided by shares.

Larger shares of rows contain the smaller ones, so curves over the share are comparable.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.types import IntArray, ValueArray
from stillhouse.corpora.published.glue import Row


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Divide a number by shares into whole numbers that add up to it, each the exact part rounded down or up.

    The largest remainders are rounded up; among equal ones, the first.

    Raises:
        BadInput: If a share is negative, or their sum is not positive.
    """
    require(all(share >= 0 for share in shares), "every share must be at least 0", shares=list(shares))
    require(sum(shares) > 0, "shares must sum to something positive", shares=list(shares))
    # Exact, so that the same shares in other units divide alike.
    exact = [Fraction(str(share)) for share in shares]
    whole = [total * share // sum(exact) for share in exact]
    rests = [total * share / sum(exact) - part for share, part in zip(exact, whole, strict=True)]
    first = sorted(range(len(shares)), key=lambda index: -rests[index])[: total - sum(whole)]
    return [int(part) + (index in first) for index, part in enumerate(whole)]


def sample_rows(groups_N: ValueArray, fraction: float, seed: int = 0) -> IntArray:
    """Sample a share of the rows, in their order, with the groups, such as labels, in proportion.

    A smaller share with the same seed is part of a larger one. Every group keeps at least one row.

    Raises:
        BadInput: If ``fraction`` is out of range, or there are no rows.
    """
    require(0 < fraction <= 1, "0 < fraction <= 1", fraction=fraction)
    require(len(groups_N) > 0, "rows to choose from >= 1", rows=0)
    random, kept = np.random.default_rng(seed), []
    for group in np.unique(groups_N):
        shuffled = random.permutation(np.flatnonzero(groups_N == group))
        kept.append(shuffled[: max(1, round(fraction * len(shuffled)))])
    return np.sort(np.concatenate(kept))


def stratified(rows: Sequence[Row], fraction: float) -> list[Row]:
    """Sample a share of labelled rows, in their order, with the classes in proportion; see `sample_rows`.

    Raises:
        BadInput: If ``fraction`` is out of range.
    """
    return [rows[int(row)] for row in sample_rows(np.array([row.label for row in rows]), fraction)]
