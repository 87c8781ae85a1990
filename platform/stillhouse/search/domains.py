"""Domains: the values that one hyper-parameter may take in a search."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import nearest, require


@dataclass(frozen=True)
class Categorical:
    """A value out of a list, which has no order.

    Attributes:
        choices: All different: numbers, strings, truth values, None, or tuples of them.
    """

    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        """Refuse an empty list, and a value that is there twice."""
        require(
            len(self.choices) > 0,
            "choices name at least one value",
            choices=self.choices,
            remedy="Give a value.",
        )
        twice = [choice for i, choice in enumerate(self.choices) if choice in self.choices[:i]]
        require(not twice, "choices are all different", twice=twice, remedy="Take the second one out.")

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.choices)

    def nth(self, index: int) -> Any:
        """The value at a place in the list."""
        return self.choices[index]

    def at(self, unit: float) -> Any:
        """The value that a number in [0, 1) falls on, all equally likely."""
        return self.choices[min(int(unit * self.size), self.size - 1)]

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is one of the choices."""
        return value in self.choices


@dataclass(frozen=True)
class Float:
    """A real number between two bounds, both included.

    Attributes:
        low: The smallest.
        high: The largest.
        log: Search orders of magnitude alike.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        """Check the bounds."""
        _check_bounds(self.low, self.high, self.log)

    @property
    def size(self) -> None:
        """None: there is no end of values."""
        return None

    def at(self, unit: float) -> float:
        """The value at a share of the way from low to high."""
        if self.log:
            value = math.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + unit * (self.high - self.low)
        return min(max(value, self.low), self.high)

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is a number within the bounds."""
        return is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Int:
    """A whole number between two bounds, both included.

    Attributes:
        low: The smallest.
        high: The largest.
        step: From one value to the next.
        log: Search orders of magnitude alike.
    """

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
            "a logarithmic range has no step",
            step=self.step,
            remedy="Leave one out.",
        )
        require(
            (self.high - self.low) % self.step == 0,
            "high is a whole number of steps above low",
            low=self.low,
            high=self.high,
            step=self.step,
        )

    @property
    def size(self) -> int:
        """How many values there are."""
        return (self.high - self.low) // self.step + 1

    def nth(self, index: int) -> int:
        """The value at a place counted from low."""
        return self.low + index * self.step

    def at(self, unit: float) -> int:
        """The value that a number in [0, 1) falls on, all equally likely (by magnitude if ``log``)."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high + 1)
            return min(max(int(math.exp(low + unit * (high - low))), self.low), self.high)
        return self.nth(min(int(unit * self.size), self.size - 1))

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is a whole number within the bounds and on a step."""
        inside = is_number(value) and self.low <= value <= self.high
        return inside and value == int(value) and (int(value) - self.low) % self.step == 0


Domain = Categorical | Float | Int


def domain(given: object) -> Domain:
    """The domain that a list of choices or a mapping with ``low`` and ``high`` stands for.

    Bounds that are both whole numbers make an `Int`.

    Raises:
        BadInput: It is neither, or its values cannot be.
    """
    if isinstance(given, list):
        return Categorical(tuple(_choice(value) for value in given))
    require(
        isinstance(given, Mapping),
        "a searched hyper-parameter is a list of values or {low: …, high: …}",
        value=given,
        remedy="A single value belongs under `fixed`.",
    )
    assert isinstance(given, Mapping)
    keys = ["low", "high", "log", "step"]
    unknown = [str(key) for key in given if key not in keys]
    remedy = nearest(unknown[0], keys) if unknown else ""
    require(not unknown, f"a range has only the keys {', '.join(keys)}", unknown=unknown, remedy=remedy)
    require("low" in given and "high" in given, "a range has `low` and `high`", value=dict(given))
    low, high, log = given["low"], given["high"], given.get("log", False)
    require(isinstance(log, bool), "log is true or false", log=log)
    for name in ("low", "high"):
        require(is_number(given[name]), f"{name} is a finite number", **{name: given[name]})
    if isinstance(low, int) and isinstance(high, int):
        step = given.get("step", 1)
        require(is_number(step) and step == int(step), "step is a whole number", step=step)
        return Int(low, high, int(step), log)
    require("step" not in given, "step goes with whole bounds", low=low, high=high, step=given.get("step"))
    return Float(float(low), float(high), log)


def frozen(value: object) -> object:
    """``value`` with its lists turned into tuples, all the way down."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _choice(value: object) -> object:
    plain = all(item is None or isinstance(item, bool | int | float | str) for item in _leaves(value))
    require(plain, "a choice is a number, a string, true, false, null or a list of them", choice=value)
    finite = all(is_number(item) for item in _leaves(value) if isinstance(item, float))
    require(finite, "a choice is finite", choice=value)
    return frozen(value)


def _leaves(value: object) -> list[object]:
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]


def _check_bounds(low: float, high: float, log: bool) -> None:
    require(low < high, "low < high", low=low, high=high)
    require(not log or low > 0, "low > 0 where log is true", low=low)
