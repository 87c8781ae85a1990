"""The graph of what is made: a value names its inputs by its fields, and one walk finds them.

Nothing here reads or makes anything.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from stillhouse.core.identity import Spec
from stillhouse.values.data import Made, Named
from stillhouse.values.stage import Stage

T = TypeVar("T")
K = TypeVar("K")
N = TypeVar("N", bound=Named)


def parts_of(value: object) -> Iterator[object]:
    """The values that a value names directly: fields, arguments of a spec, items."""
    if isinstance(value, Spec):
        yield from value.kwargs.values()
    elif isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, tuple | list):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name) for field in dataclasses.fields(value))


def of_kind(kind: type[K], values: Iterable[object]) -> list[K]:
    """List the values of a kind among some values."""
    return [each for each in values if isinstance(each, kind)]


def _name(value: Named) -> str:
    """Name a value as its folder does: one content under two labels is made twice."""
    return f"{getattr(value, 'label', '')}-{value.fingerprint}"


def reached(kind: type[N], *values: object) -> list[N]:
    """List the values of a kind that some values name, each once, those of earlier stages among them."""
    found: dict[str, N] = {}
    left, seen = list(reversed(values)), set[int]()
    while left:
        value = left.pop()
        if id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, kind):
                found.setdefault(_name(value), value)
            left += reversed(list(parts_of(value)))
    return list(found.values())


def missing(values: Iterable[object], finished: Callable[[Any], bool]) -> list[Made]:
    """List what some values need and nobody has made, each once and after its own inputs.

    What is finished is not looked into. A stage within a value is trained before what reads it: whatever
    needs one that is not finished is left to whoever trains that. Of a stage among ``values`` its inputs are
    listed.
    """
    found: dict[str, Made] = {}

    def is_ready(value: object) -> bool:
        if isinstance(value, Stage):
            return finished(value)
        if isinstance(value, Made) and value.is_made and (_name(value) in found or finished(value)):
            return True
        ready = all([is_ready(part) for part in parts_of(value)])
        if ready and isinstance(value, Made) and value.is_made:
            found[_name(value)] = value
        return ready

    for value in values:
        for part in parts_of(value) if isinstance(value, Stage) else (value,):
            is_ready(part)
    return list(found.values())


def swapped(value: T, kind: type[K], change: Callable[[K], object], *, but: type | tuple[()] = ()) -> T:
    """The same value with other parts of a kind, wherever they are; values of the kinds ``but`` stay whole.

    ``change`` returns what takes the place of a part, or the part itself.
    """
    new: Any = change(value) if isinstance(value, kind) else value
    old = [] if isinstance(value, but) else list(parts_of(value))
    if new is not value or not old:
        return new  # type: ignore[no-any-return]
    parts = [swapped(part, kind, change, but=but) for part in old]
    if all(part is before for part, before in zip(parts, old, strict=True)):
        return value
    if isinstance(value, Spec):
        new = Spec(value.target, dict(zip(value.kwargs, parts, strict=True)))
    elif isinstance(value, Mapping):
        new = dict(zip(value, parts, strict=True))
    elif isinstance(value, tuple | list):
        new = type(value)(parts)
    else:
        names = [field.name for field in dataclasses.fields(value)]
        new = dataclasses.replace(value, **dict(zip(names, parts, strict=True)))
    return new  # type: ignore[no-any-return]
