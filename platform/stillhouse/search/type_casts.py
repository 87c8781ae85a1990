"""Values against the types that a method's dataclass declares for its hyper-parameters."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from stillhouse.core.errors import BadInput, require
from stillhouse.search.domains import Categorical, Domain, Float, Int

_NO = object()


def cast_domain(values: Domain, name: str, hyper_parameters: type, source: str) -> Domain:
    """``values`` in the numbers of the declared type.

    Raises:
        BadInput: A choice, or the range as a whole, is of another type.
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
    if fit(0.5, hint) is _NO and whole and isinstance(fit(1, hint), int):
        return Int(int(values.low), int(values.high), log=values.log)
    _cast(values.high if fit(0.5, hint) is not _NO else 0.5, name, hint, source)
    return values


def cast_point(point: Mapping[str, Any], hyper_parameters: type, source: str, key: str) -> dict[str, Any]:
    """A point in the numbers of the declared types.

    Raises:
        BadInput: A value is of another type.
    """
    hints = typing.get_type_hints(hyper_parameters)
    return {name: _cast(value, f"{key}.{name}", hints[name], source) for name, value in point.items()}


def check_ranges(
    domains: Mapping[str, Domain], base: Mapping[str, Any], hyper_parameters: type, source: str
) -> None:
    """Build the dataclass once for each end of each domain, the rest as in ``base``.

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
    """``value`` as ``hint`` wants it (a whole number becomes a real one), or a sentinel if it cannot be."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Union or origin is types.UnionType:
        fitted = [fit(value, argument) for argument in arguments]
        same = [item for item in fitted if item is not _NO and type(item) is type(value)]
        return next(iter(same + [item for item in fitted if item is not _NO]), _NO)
    if origin is Literal:
        return value if value in arguments else _NO
    if origin in (tuple, list) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return _fit_items(value, origin, arguments)
    if hint is None or hint is type(None):
        return value if value is None else _NO
    if hint in (bool, str):
        return value if isinstance(value, hint) else _NO
    if hint in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return hint(value) if number and hint(value) == value else _NO
    return value


def _fit_items(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if not isinstance(value, tuple):
        return _NO
    open_ended = origin is not tuple or arguments[-1] is Ellipsis
    wanted = [arguments[0]] * len(value) if open_ended else list(arguments)
    if len(wanted) != len(value):
        return _NO
    fitted = tuple(fit(item, hint) for item, hint in zip(value, wanted, strict=True))
    return _NO if _NO in fitted else fitted


def _cast(value: Any, name: str, hint: Any, source: str) -> Any:
    fitted = fit(value, hint)
    wanted = (
        getattr(hint, "__name__", None) if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    )
    require(fitted is not _NO, f"{name} is of type {wanted}", file=source, key=name, value=value)
    return fitted


def _ends(values: Domain) -> tuple[Any, ...]:
    return values.choices if isinstance(values, Categorical) else (values.low, values.high)
