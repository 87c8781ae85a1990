"""Identity: a value's printable, stable fingerprint, and `Spec`, a frozen class plus its arguments.

*What* is computed is a frozen value with a fingerprint; *where* it runs is not part of it. Code is not
hashed: a class carries ``version: ClassVar[int]``, raised when its meaning changes.
"""

import dataclasses
import enum
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from stillhouse.core.errors import BadInput, nearest

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Spec(Generic[T]):
    """A class (or function) with keyword arguments, to be built later and fingerprinted now.

    Attributes:
        target: What will be called.
        kwargs: Its keyword arguments, every value with a stable identity.
    """

    target: Callable[..., T]
    kwargs: Mapping[str, Any]

    def build(self, **runtime: Any) -> T:
        """Call the target; ``runtime`` adds what is known only where it runs, such as ``student_dim``."""
        wanted = inspect.signature(self.target).parameters
        return self.target(
            **self.kwargs, **{k: v for k, v in runtime.items() if k in wanted and k not in self.kwargs}
        )

    def replace(self, **changes: Any) -> "Spec[T]":
        """The same spec with some arguments changed."""
        return spec(self.target, **{**self.kwargs, **changes})

    def __repr__(self) -> str:
        """``InfoNCE(temperature=0.1)``."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.kwargs.items())
        return f"{_name(self.target)}({arguments})"


def spec(target: Callable[..., T], **kwargs: Any) -> Spec[T]:
    """Freeze a call.

    Raises:
        BadInput: An argument that the target does not take, or a value without a stable identity.
    """
    known = list(inspect.signature(target).parameters)
    for name, value in kwargs.items():
        if name not in known:
            raise BadInput(f"`{_name(target)}` takes no argument `{name}`. {nearest(name, known)}")
        try:
            canonical(value)
        except BadInput as unstable:
            raise BadInput(f"argument `{name}` of `{_name(target)}`: {unstable}") from None
    return Spec(target, kwargs)


def fingerprint(value: object) -> str:
    """Sixteen hexadecimal digits that are equal if and only if the values mean the same."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canonical(value: object) -> Any:
    """The JSON form that is fingerprinted, also what a manifest keeps to say what it was made of.

    A frozen dataclass contributes its name, its ``version`` and its fields; a field with
    ``metadata={"identity": False}`` is left out, one with ``{"identity": "unless_default"}`` only when it
    has its default.

    Raises:
        BadInput: The value has no stable identity (a lambda, an open file, a mutable object).
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, enum.Enum):
        return {"enum": f"{_name(type(value))}.{value.name}"}
    if isinstance(value, tuple | list):
        return [canonical(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, Spec):
        return {"call": _name(value.target), "version": _version(value.target), "with": _bound(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"value": _name(type(value)), "version": _version(type(value)), "with": _fields(value)}
    raise BadInput(
        f"a stable identity must exist for every value that names an artifact, but got {value!r} "
        f"({type(value).__name__}). Use numbers, strings, lists, mappings, frozen dataclasses or `spec(...)`."
    )


def _fields(value: Any) -> dict[str, Any]:
    kept = {}
    for field in dataclasses.fields(value):
        rule, item = field.metadata.get("identity", True), getattr(value, field.name)
        if rule is False or (rule == "unless_default" and item == field.default):
            continue
        kept[field.name] = canonical(item)
    return kept


def _bound(call: Spec[Any]) -> dict[str, Any]:
    """Arguments with defaults filled in: a changed default changes the identity, a spelt-out one does not."""
    parameters = inspect.signature(call.target).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    return {name: canonical(value) for name, value in {**defaults, **call.kwargs}.items()}


def _version(target: object) -> int:
    return int(getattr(target, "version", 1))


def _name(target: object) -> str:
    name = getattr(target, "__qualname__", "")
    module = getattr(target, "__module__", "")
    if not name or "<" in name or not module:
        raise BadInput(f"a class or function must be importable by name, but got {target!r}.")
    return f"{module.removeprefix('stillhouse.')}.{name}"
