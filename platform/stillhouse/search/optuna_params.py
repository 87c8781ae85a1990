"""A search space and its points in Optuna's terms: distributions, and parameters that a study can store."""

import json
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from stillhouse.search.domains import Categorical, Float, frozen
from stillhouse.search.space import Space


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Translate a space; a choice that is a list becomes its JSON text."""
    return {name: _distribution(values) for name, values in space.domains.items()}


def encode(point: dict[str, Any], space: Space) -> dict[str, Any]:
    """Translate a point into the parameters that Optuna stores, in the order of the space."""
    return {name: _text(point[name]) for name in space.domains}


def decode(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """Translate stored parameters back, and add the values that the space fixes: all that a plan needs."""
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
