"""Domains: the values that a hyper-parameter may take in a search."""

import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from stillhouse.core.errors import nearest, require
from stillhouse.core.type_casts import MISMATCH, cast, fit


@dataclass(frozen=True)
class Categorical:
    """One value of an unordered list.

    Attributes:
        choices: Distinct values: numbers, strings, booleans, None, or tuples of them.
    """

    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        """Refuse an empty list and repeated values."""
        require(
            len(self.choices) > 0,
            "a list of choices must have at least one value",
            choices=self.choices,
            remedy="Add a value.",
        )
        repeated = [choice for i, choice in enumerate(self.choices) if choice in self.choices[:i]]
        require(
            not repeated, "choices must all be different", repeated=repeated, remedy="Remove the duplicate."
        )

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.choices)

    def nth(self, index: int) -> Any:
        """The value at an index of the list."""
        return self.choices[index]

    def at(self, unit: float) -> Any:
        """Map a number in [0, 1) to a value; all values are equally likely."""
        return self.choices[min(int(unit * self.size), self.size - 1)]

    def holds(self, value: Any) -> bool:
        """Return whether ``value`` is one of the choices."""
        return value in self.choices


@dataclass(frozen=True)
class Float:
    """A real number between two bounds, both included, on a logarithmic scale if ``log``."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        """Check the bounds."""
        _check_bounds(self.low, self.high, self.log)

    def at(self, unit: float) -> float:
        """Map a number in [0, 1) to the value at that fraction of the range."""
        if self.log:
            value = math.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + unit * (self.high - self.low)
        return min(max(value, self.low), self.high)

    def holds(self, value: Any) -> bool:
        """Return whether ``value`` is a number within the bounds."""
        return is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Int:
    """An integer between two bounds, both included, in steps, or on a logarithmic scale if ``log``."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    def __post_init__(self) -> None:
        """Check the bounds and the step."""
        _check_bounds(self.low, self.high, self.log)
        require(self.step >= 1, "step >= 1", step=self.step)
        require(
            not self.log or self.step == 1,
            "a logarithmic range must have no step",
            step=self.step,
            remedy="Remove `log` or `step`.",
        )
        require(
            (self.high - self.low) % self.step == 0,
            "`high` must be a whole number of steps above `low`",
            low=self.low,
            high=self.high,
            step=self.step,
        )

    @property
    def size(self) -> int:
        """Number of values."""
        return (self.high - self.low) // self.step + 1

    def nth(self, index: int) -> int:
        """The value at an index, counted from ``low``."""
        return self.low + index * self.step

    def at(self, unit: float) -> int:
        """Map a number in [0, 1) to a value; all are equally likely (on a log scale if ``log``)."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high + 1)
            return min(max(int(math.exp(low + unit * (high - low))), self.low), self.high)
        return self.nth(min(int(unit * self.size), self.size - 1))

    def holds(self, value: Any) -> bool:
        """Return whether ``value`` is an integer within the bounds and on a step."""
        inside = is_number(value) and self.low <= value <= self.high
        return inside and value == int(value) and (int(value) - self.low) % self.step == 0


Domain = Categorical | Float | Int


def domain(given: object) -> Domain:
    """Parse a list of choices, or a mapping with ``low`` and ``high``, into a domain.

    Two integer bounds make an `Int`.

    Raises:
        BadInput: The value is neither, or its values are invalid.
    """
    if isinstance(given, list):
        return Categorical(tuple(_choice(value) for value in given))
    require(
        isinstance(given, Mapping),
        "a searched hyper-parameter must be a list of values or {low: …, high: …}",
        value=given,
        remedy="Put a single value under `fixed`.",
    )
    assert isinstance(given, Mapping)
    keys = ["low", "high", "log", "step"]
    unknown = [str(key) for key in given if key not in keys]
    remedy = nearest(unknown[0], keys) if unknown else ""
    require(
        not unknown, f"the keys of a range must be among {', '.join(keys)}", unknown=unknown, remedy=remedy
    )
    require("low" in given and "high" in given, "a range must have `low` and `high`", value=dict(given))
    low, high, log = given["low"], given["high"], given.get("log", False)
    require(isinstance(log, bool), "`log` must be true or false", log=log)
    for name in ("low", "high"):
        require(is_number(given[name]), f"`{name}` must be a finite number", **{name: given[name]})
    if isinstance(low, int) and isinstance(high, int):
        step = given.get("step", 1)
        require(is_number(step) and step == int(step), "`step` must be an integer", step=step)
        return Int(low, high, int(step), log)
    require(
        "step" not in given,
        "`step` must be used with integer bounds only",
        low=low,
        high=high,
        step=given.get("step"),
    )
    return Float(float(low), float(high), log)


def as_given(searched: Domain) -> Any:
    """The inverse of `domain`: what an experiment file has."""
    if isinstance(searched, Categorical):
        return list(searched.choices)
    given = {field.name: (getattr(searched, field.name), field.default) for field in fields(searched)}
    return {name: value for name, (value, default) in given.items() if value != default}


def frozen(value: object) -> object:
    """Convert all lists in ``value``, nested ones too, to tuples."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value


def is_number(value: object) -> bool:
    """Return whether ``value`` is a finite number; a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _choice(value: object) -> object:
    plain = all(item is None or isinstance(item, bool | int | float | str) for item in _leaves(value))
    require(plain, "a choice must be a number, a string, true, false, null or a list of them", choice=value)
    finite = all(is_number(item) for item in _leaves(value) if isinstance(item, float))
    require(finite, "a choice must be a finite number", choice=value)
    return frozen(value)


def _leaves(value: object) -> list[object]:
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]


def _check_bounds(low: float, high: float, log: bool) -> None:
    require(low < high, "low < high", low=low, high=high)
    require(not log or low > 0, "low > 0 if log is true", low=low)


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
