"""The next point of a search: the first of a sampler's candidates that was not tried before."""

import json
from typing import TYPE_CHECKING, Any

from stillhouse.search.optuna_params import encode
from stillhouse.search.samplers import LARGEST_GRID, Search, load_sampler

if TYPE_CHECKING:
    pass


def propose(name: str, search: Search) -> dict[str, Any] | None:
    """Propose a point that was not tried before.

    Returns:
        The point, or None when every point of the space has been tried.
    """
    space = search.space
    tried = {_key(trial.params) for trial in search.past}
    if space.points is not None and len(tried) >= space.points:
        return None
    point: dict[str, Any] | None = None
    for point in load_sampler(name).candidates(search):
        if _key(encode(point, space)) not in tried:
            return point
    if space.points is None or space.points > LARGEST_GRID:
        return point
    grid = load_sampler("grid").candidates(search)
    return next((point for point in grid if _key(encode(point, space)) not in tried), None)


def _key(params: dict[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)
