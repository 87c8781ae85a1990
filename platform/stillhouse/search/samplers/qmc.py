"""Quasi-random points: a scrambled Sobol sequence over the unit cube."""

from collections.abc import Iterator
from typing import Any

from stillhouse.core.errors import require
from stillhouse.search.samplers import ATTEMPTS, Search
from stillhouse.search.space import Space

NEEDS_RANGES = True


def check(space: Space) -> None:
    """Refuse a space without a numeric range."""
    require(
        space.has_numeric,
        "a space for quasi-random points must have a numeric range",
        sampler="qmc",
        file=space.source,
        remedy="Search the `continuous` section, or use another sampler.",
    )


def candidates(search: Search) -> Iterator[dict[str, Any]]:
    """Yield the point of the sequence at the number of past trials, then later ones."""
    from scipy.stats import qmc

    for attempt in range(ATTEMPTS):
        sobol = qmc.Sobol(len(search.space.domains), scramble=True, seed=search.seed)
        sobol.fast_forward(len(search.past) + attempt * search.trials)
        yield search.space.at(sobol.random(1)[0].tolist())
