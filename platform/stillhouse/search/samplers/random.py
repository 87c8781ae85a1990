"""Independent points, drawn uniformly (log-uniformly where a range is logarithmic)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stillhouse.search.samplers import ATTEMPTS, Search
from stillhouse.search.space import Space


def check(space: Space) -> None:
    """Accept every space."""


def candidates(search: Search) -> Iterator[dict[str, Any]]:
    """Yield random points; each depends only on the seed, the number of past trials and the attempt."""
    for attempt in range(ATTEMPTS):
        generator = np.random.default_rng([search.seed, len(search.past), attempt])
        yield search.space.at(generator.random(len(search.space.domains)).tolist())
