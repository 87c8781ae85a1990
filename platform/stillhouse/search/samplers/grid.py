"""Every point of the grid once, in an order that the seed decides."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stillhouse.core.errors import require
from stillhouse.search.domains import Float
from stillhouse.search.samplers import LARGEST_GRID, Search
from stillhouse.search.space import Space


def check(space: Space) -> None:
    """Refuse a space with a range of real numbers, and a grid that is too large to shuffle."""
    size = space.grid_size()
    require(
        size <= LARGEST_GRID,
        f"a grid must have at most {LARGEST_GRID} points",
        points=size,
        remedy="Use the sampler `random`.",
    )


def candidates(search: Search) -> Iterator[dict[str, Any]]:
    """Yield all points of the grid, shuffled."""
    columns = {n: values for n, values in search.space.domains.items() if not isinstance(values, Float)}
    sizes = [values.size for values in columns.values()]
    for index in np.random.default_rng(search.seed).permutation(search.space.grid_size()):
        places = np.unravel_index(int(index), sizes)
        yield {
            name: values.nth(int(place))
            for (name, values), place in zip(columns.items(), places, strict=True)
        }
