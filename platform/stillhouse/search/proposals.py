"""The next point of a search: the first of a sampler's candidates that may be tried and was not before."""

import json
from typing import Any

from stillhouse.search.optuna_params import encode
from stillhouse.search.samplers import LARGEST_GRID, Search, load_sampler


def propose(name: str, search: Search) -> dict[str, Any] | None:
    """Propose a point that was not tried before, and is not refused.

    Returns:
        The point, or None when every such point of the space has been tried.
    """
    space = search.space
    tried = {_key(trial.params) for trial in search.past}
    if space.points is not None and len(tried) >= space.points:
        return None

    def fits(point: dict[str, Any]) -> bool:
        return not search.refused({**space.fixed, **point})

    known: dict[str, Any] | None = None
    for point in load_sampler(name).candidates(search):
        if _key(encode(point, space)) in tried:
            known = point
        elif fits(point):
            return point
    if space.points is None or space.points > LARGEST_GRID:
        return known
    grid = load_sampler("grid").candidates(search)
    return next((point for point in grid if _key(encode(point, space)) not in tried and fits(point)), None)


def _key(params: dict[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)
