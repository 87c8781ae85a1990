"""Conversion of values to the types that a method's dataclass declares for its hyper-parameters."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from stillhouse.core.errors import BadInput, require
from stillhouse.search.domains import Categorical, Domain, Float, Int

_MISMATCH = object()


def cast_domain(values: Domain, name: str, hyper_parameters: type, source: str) -> Domain:
    """Convert a domain to the declared type.

    Raises:
        BadInput: A choice, or the range as a whole, has another type.
    """
    hint = typing.get_type_hints(hyper_parameters)[name]
    if isinstance(values, Categorical):
        return Categorical(tuple(_cast(choice, name, hint, source) for choice in values.choices))
    if isinstance(values, Int):
        if isinstance(fit(values.low, hint), float) and values.step == 1:
            return Float(float(values.low), float(values.high), values.log)
        _cast(values.low, name, hint, source)
        return values
    whole = values.low.is_integer() and values.high.is_integer()
    if fit(0.5, hint) is _MISMATCH and whole and isinstance(fit(1, hint), int):
        return Int(int(values.low), int(values.high), log=values.log)
    _cast(values.high if fit(0.5, hint) is not _MISMATCH else 0.5, name, hint, source)
    return values


def cast_point(point: Mapping[str, Any], hyper_parameters: type, source: str, key: str) -> dict[str, Any]:
    """Convert a point to the declared types.

    Raises:
        BadInput: A value has another type.
    """
    hints = typing.get_type_hints(hyper_parameters)
    return {name: _cast(value, f"{key}.{name}", hints[name], source) for name, value in point.items()}


def check_ranges(
    domains: Mapping[str, Domain], base: Mapping[str, Any], hyper_parameters: type, source: str
) -> None:
    """Build the dataclass for each end of each domain, with the other values from ``base``.

    Raises:
        BadInput: The dataclass refuses a value.
    """
    fields = [field for field in dataclasses.fields(hyper_parameters) if field.init]
    needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    if set(needed) - set(base) - set(domains):
        return
    base = {**{name: _ends(domains[name])[0] for name in needed if name in domains}, **base}
    for name, values in domains.items():
        for value in _ends(values):
            try:
                hyper_parameters(**{**base, name: value})
            except BadInput as refused:
                raise BadInput(f"{source}: key `{name}`, value {value!r}: {refused}") from None


def fit(value: Any, hint: Any) -> Any:
    """Convert ``value`` to the type ``hint`` (an integer becomes a float), or return a sentinel."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Union or origin is types.UnionType:
        fitted = [fit(value, argument) for argument in arguments]
        same = [item for item in fitted if item is not _MISMATCH and type(item) is type(value)]
        return next(iter(same + [item for item in fitted if item is not _MISMATCH]), _MISMATCH)
    if origin is Literal:
        return value if value in arguments else _MISMATCH
    if origin in (tuple, list) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return _fit_items(value, origin, arguments)
    if hint is None or hint is type(None):
        return value if value is None else _MISMATCH
    if hint in (bool, str):
        return value if isinstance(value, hint) else _MISMATCH
    if hint in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return hint(value) if number and hint(value) == value else _MISMATCH
    return value


def _fit_items(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if not isinstance(value, tuple):
        return _MISMATCH
    open_ended = origin is not tuple or arguments[-1] is Ellipsis
    hints = [arguments[0]] * len(value) if open_ended else list(arguments)
    if len(hints) != len(value):
        return _MISMATCH
    fitted = tuple(fit(item, hint) for item, hint in zip(value, hints, strict=True))
    return _MISMATCH if _MISMATCH in fitted else fitted


def _cast(value: Any, name: str, hint: Any, source: str) -> Any:
    fitted = fit(value, hint)
    plain = isinstance(hint, type) and not typing.get_args(hint)
    declared = getattr(hint, "__name__", None) if plain else str(hint)
    require(fitted is not _MISMATCH, f"{name} must be of type {declared}", file=source, key=name, value=value)
    return fitted


def _ends(values: Domain) -> tuple[Any, ...]:
    return values.choices if isinstance(values, Categorical) else (values.low, values.high)
