"""Conversion of values to the types that a method's dataclass declares for its hyper-parameters."""

import typing
from collections.abc import Mapping
from typing import Any

from stillhouse.core.type_casts import MISMATCH, cast, fit
from stillhouse.search.domains import Categorical, Domain, Float, Int


def cast_domain(values: Domain, name: str, hyper_parameters: type, source: str) -> Domain:
    """Convert a domain to the declared type.

    Raises:
        BadInput: A choice, or the range as a whole, has another type.
    """
    hint = typing.get_type_hints(hyper_parameters)[name]
    if isinstance(values, Categorical):
        return Categorical(tuple(cast(choice, name, hint, source) for choice in values.choices))
    if isinstance(values, Int):
        if isinstance(fit(values.low, hint), float) and values.step == 1:
            return Float(float(values.low), float(values.high), values.log)
        cast(values.low, name, hint, source)
        return values
    whole = values.low.is_integer() and values.high.is_integer()
    if fit(0.5, hint) is MISMATCH and whole and isinstance(fit(1, hint), int):
        return Int(int(values.low), int(values.high), log=values.log)
    cast(values.high if fit(0.5, hint) is not MISMATCH else 0.5, name, hint, source)
    return values


def cast_point(point: Mapping[str, Any], hyper_parameters: type, source: str, key: str) -> dict[str, Any]:
    """Convert a point to the declared types.

    Raises:
        BadInput: A value has another type.
    """
    hints = typing.get_type_hints(hyper_parameters)
    return {name: cast(value, f"{key}.{name}", hints[name], source) for name, value in point.items()}
