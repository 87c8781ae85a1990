"""The next point of a search: a function of the space, the seed and the trials so far, and of nothing else.

No sampler keeps a state: a sweep that was killed and started again proposes what an undisturbed one does.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from stillhouse.core.errors import nearest, require
from stillhouse.search.domains import Categorical, Float, frozen
from stillhouse.search.space import Space

SAMPLERS = ("tpe", "random", "qmc", "grid")
_LARGEST_GRID = 5_000_000
_TRIES = 32


def check_sampler(sampler: str, space: Space) -> None:
    """Refuse a sampler that the space cannot have.

    Raises:
        BadInput: An unknown one, quasi-random points of nothing numeric, a grid of a real range.
    """
    require(
        sampler in SAMPLERS,
        f"the sampler is one of {', '.join(SAMPLERS)}",
        sampler=sampler,
        remedy=nearest(sampler, list(SAMPLERS)),
    )
    require(
        sampler != "qmc" or space.has_numeric,
        "quasi-random points need a range of numbers in the space",
        sampler=sampler,
        file=space.source,
        remedy="Search the `continuous` section, or take another sampler.",
    )
    if sampler == "grid":
        size = space.grid_size()
        require(
            size <= _LARGEST_GRID,
            f"a grid has at most {_LARGEST_GRID} points",
            points=size,
            remedy="Take the sampler `random`.",
        )


def propose(
    space: Space,
    past: Sequence[FrozenTrial],
    *,
    sampler: str,
    seed: int,
    trials: int,
    directions: Sequence[str],
) -> dict[str, Any] | None:
    """A point that was not tried before.

    Args:
        space: What is searched.
        past: All trials that count, in the order of their numbers.
        sampler: ``tpe``, ``random``, ``qmc`` or ``grid``.
        seed: Of the sweep.
        trials: How many the sweep will have; TPE draws the first third at random (4 to 10 trials).
        directions: ``maximize`` or ``minimize``, one an objective.

    Returns:
        The point; None where every point was tried.
    """
    seen = {_key(trial.params) for trial in past}
    if space.points is not None and len(seen) >= space.points:
        return None
    if sampler == "grid":
        candidates = _shuffled_grid(space, seed)
    elif sampler == "qmc":
        candidates = _quasi_random(space, seed, len(past), trials)
    elif sampler == "random" or not past:
        candidates = _random(space, seed, len(past))
    else:
        startup = min(10, max(4, trials // 3))
        candidates = _tpe(space, past, seed, startup, directions)
    point: dict[str, Any] | None = None
    for point in candidates:
        if _key(encode(point, space)) not in seen:
            return point
    unseen = None if space.points is None or space.points > _LARGEST_GRID else _shuffled_grid(space, seed)
    return next((p for p in unseen if _key(encode(p, space)) not in seen), None) if unseen else point


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The space in Optuna's terms; a list among the choices is its JSON text."""
    return {name: _distribution(values) for name, values in space.domains.items()}


def encode(point: dict[str, Any], space: Space) -> dict[str, Any]:
    """A point as Optuna stores it, in the order of the space."""
    return {name: _text(point[name]) for name in space.domains}


def decode(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """A point as Optuna stored it, in its own types, and what the space fixes: all that a plan needs."""
    point = dict(space.fixed)
    for name, values in space.domains.items():
        value = params[name]
        if isinstance(values, Categorical):
            listed = [choice for choice in values.choices if _text(choice) == value]
            value = listed[0] if listed else frozen(value)
        point[name] = value
    return point


def _distribution(values: Any) -> BaseDistribution:
    if isinstance(values, Categorical):
        return CategoricalDistribution([_text(choice) for choice in values.choices])
    if isinstance(values, Float):
        return FloatDistribution(values.low, values.high, log=values.log)
    return IntDistribution(values.low, values.high, log=values.log, step=values.step)


def _text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, tuple) else value


def _key(params: dict[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)


def _shuffled_grid(space: Space, seed: int) -> Iterator[dict[str, Any]]:
    columns = [values for values in space.domains.values() if not isinstance(values, Float)]
    sizes = [values.size for values in columns]
    for index in np.random.default_rng(seed).permutation(space.grid_size()):
        places = np.unravel_index(int(index), sizes)
        yield {
            name: values.nth(int(place))
            for name, values, place in zip(space.domains, columns, places, strict=True)
        }


def _random(space: Space, seed: int, index: int) -> Iterator[dict[str, Any]]:
    for attempt in range(_TRIES):
        yield space.at(np.random.default_rng([seed, index, attempt]).random(len(space.domains)).tolist())


def _quasi_random(space: Space, seed: int, index: int, trials: int) -> Iterator[dict[str, Any]]:
    from scipy.stats import qmc

    for attempt in range(_TRIES):
        sobol = qmc.Sobol(len(space.domains), scramble=True, seed=seed)
        sobol.fast_forward(index + attempt * trials)
        yield space.at(sobol.random(1)[0].tolist())


def _tpe(
    space: Space, past: Sequence[FrozenTrial], seed: int, startup: int, directions: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """What TPE says in a study in memory that holds the past; nothing is written until the point is known."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    useful = [trial for trial in past if trial.state != TrialState.FAIL]
    for attempt in range(_TRIES):
        state = np.random.SeedSequence([seed, len(past), attempt]).generate_state(1)
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=startup, multivariate=len(directions) == 1, seed=int(state[0])
        )
        study = optuna.create_study(sampler=sampler, directions=list(directions))
        study.add_trials(useful)
        yield decode(study.ask(distributions(space)).params, space)
