"""Conversion of values to declared types: an integer becomes a float, and nothing else is converted."""

import dataclasses
import functools
import re
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal, Union

from stillhouse.core.errors import require

MISMATCH = object()
"""What `fit` returns for a value that does not fit."""


def fit(value: Any, hint: Any) -> Any:
    """Convert ``value`` to the type ``hint`` (an integer becomes a float), or return a sentinel."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Union or origin is types.UnionType:
        fitted = [fit(value, argument) for argument in arguments]
        same = [item for item in fitted if item is not MISMATCH and type(item) is type(value)]
        return next(iter(same + [item for item in fitted if item is not MISMATCH]), MISMATCH)
    if origin is Literal:
        return value if value in arguments else MISMATCH
    if origin in (tuple, list) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return _fit_items(value, origin, arguments)
    if hint is None or hint is type(None):
        return value if value is None else MISMATCH
    if hint in (bool, str):
        return value if isinstance(value, hint) else MISMATCH
    if hint in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        finite = number and abs(value) <= sys.float_info.max
        return hint(value) if finite and hint(value) == value else MISMATCH
    return value


def check_types(value: Any, path: str, /, **remedies: str) -> None:
    """Refuse a frozen dataclass with a field of another type; a list becomes a tuple, a `Path` a string.

    Args:
        value: The dataclass, in its ``__post_init__``.
        path: What it is called in experiment files; empty for an experiment.
        **remedies: What to do about some fields, by name.

    Raises:
        BadInput: There is such a field; the message names it by its path.
    """
    owner: Any = type(value)
    hints = _hints(owner)
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        plain = str(given) if isinstance(given, PurePath) else given
        fitted = _fit_class(tuple(plain) if isinstance(plain, list) else plain, hints[field.name])
        name = f"{path}.{field.name}" if path else field.name
        shown = plain if isinstance(plain, _SHOWN) else type(plain).__name__
        rule = f"{name} must be of type {_named(hints[field.name])}"
        require(fitted is not MISMATCH, rule, remedy=remedies.get(field.name, ""), **{field.name: shown})
        if fitted is not given:
            object.__setattr__(value, field.name, fitted)


_hints = functools.cache(typing.get_type_hints)
_SHOWN = (str, int, float, list, tuple, dict, type(None))


def _fit_class(value: Any, hint: Any) -> Any:
    """As `fit`; a class of this package, or a tuple of such, is met by its instances."""
    if typing.get_origin(hint) is tuple and isinstance(value, tuple):
        item = typing.get_args(hint)[0]
        if _class_of(item) is not None:
            return value if all(_fit_class(each, item) is not MISMATCH for each in value) else MISMATCH
    wanted = _class_of(hint)
    if wanted is not None:
        return value if isinstance(value, wanted) else MISMATCH
    return fit(value, hint)


def _class_of(hint: Any) -> type[Any] | None:
    found = typing.get_origin(hint) or hint
    return found if isinstance(found, type) and found.__module__.startswith("stillhouse.") else None


def _named(hint: Any) -> str:
    whole = str(hint) if typing.get_args(hint) else getattr(hint, "__name__", str(hint))
    return re.sub(r"\w[\w.]*\.(?=\w)", "", whole)


def _fit_items(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if not isinstance(value, tuple):
        return MISMATCH
    open_ended = origin is not tuple or arguments[-1] is Ellipsis
    hints = [arguments[0]] * len(value) if open_ended else list(arguments)
    if len(hints) != len(value):
        return MISMATCH
    fitted = tuple(fit(item, hint) for item, hint in zip(value, hints, strict=True))
    return MISMATCH if MISMATCH in fitted else fitted


def cast(value: Any, name: str, hint: Any, source: str = "") -> Any:
    """Convert a value to its declared type.

    Args:
        value: The value; a list counts as a tuple.
        name: What the user knows it by.
        hint: The declared type.
        source: The file that the value comes from, for the message; empty for none.

    Raises:
        BadInput: The value has another type.
    """
    fitted = fit(tuple(value) if isinstance(value, list) else value, hint)
    where = {"file": source} if source else {}
    rule = f"{name} must be of type {_named(hint)}{', and finite' if hint is float else ''}"
    require(fitted is not MISMATCH, rule, **where, key=name, value=value)
    return fitted
