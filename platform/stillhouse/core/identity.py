"""Identity: a stable, printable fingerprint of a value, and `Spec`, a class together with its arguments.

*What* is computed is a frozen value with a fingerprint; *where* it runs is not part of it. Code is not
hashed: a class carries ``version: ClassVar[int]``, which is raised when its meaning changes. A class of this
package counts by its name alone, which no other one has, so that it may move to another module.
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
    """A class (or function) with keyword arguments, which is fingerprinted now and called later."""

    target: Callable[..., T]
    kwargs: Mapping[str, Any]

    def build(self, **runtime: Any) -> T:
        """Call the target; ``runtime`` adds arguments known only at run time, such as ``student_dim``."""
        accepted = inspect.signature(self.target).parameters
        added = {k: v for k, v in runtime.items() if k in accepted and k not in self.kwargs}
        return self.target(**self.kwargs, **added)

    def replace(self, **changes: Any) -> "Spec[T]":
        """Return the same spec with some arguments changed."""
        return spec(self.target, **{**self.kwargs, **changes})

    def __repr__(self) -> str:
        """``InfoNCE(temperature=0.1)``."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.kwargs.items())
        return f"{_name(self.target)}({arguments})"


def spec(target: Callable[..., T], **kwargs: Any) -> Spec[T]:
    """Make a `Spec`.

    Raises:
        BadInput: The target does not take an argument, or a value has no stable identity.
    """
    known = list(inspect.signature(target).parameters)
    for name, value in kwargs.items():
        if name not in known:
            raise BadInput(f"`{_name(target)}` has no argument `{name}`. {nearest(name, known)}")
        try:
            canonical(value)
        except BadInput as unstable:
            raise BadInput(f"argument `{name}` of `{_name(target)}`: {unstable}") from None
    return Spec(target, kwargs)


def fingerprint(value: object) -> str:
    """Hash a value into sixteen hexadecimal digits, equal if and only if the values mean the same."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canonical(value: object) -> Any:
    """Convert a value to the JSON form that is fingerprinted, and that manifests keep.

    What has that form already stays as it is, so a value and its JSON are one and the same.

    A frozen dataclass contributes its name, its ``version`` and its fields. A field with
    ``metadata={"identity": False}`` is left out; one with ``{"identity": "unless_default"}`` is left out when
    it has its default value.

    Raises:
        BadInput: The value has no stable identity (a lambda, an open file, a mutable object).
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(float(value))}  # NumPy 2 names the type of its own
    if isinstance(value, enum.Enum):
        return {"enum": f"{_name(type(value))}.{value.name}"}
    if isinstance(value, tuple | list):
        return [canonical(item) for item in value]
    if isinstance(value, Mapping):
        content = {str(key): canonical(item) for key, item in value.items()}
        if len(content) < len(value):
            raise BadInput(
                "a mapping that names an artifact must have names that differ as text, but got "
                f"{value!r}. Rename its keys."
            )
        return content
    if isinstance(value, Spec):
        return {"call": _name(value.target), "version": _version(value.target), "with": _bound(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"value": _name(type(value)), "version": _version(type(value)), "with": _fields(value)}
    raise BadInput(
        f"every value that names an artifact must have a stable identity, but got {value!r} "
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
    """Arguments and defaults: changing a default changes the identity, spelling it out does not.

    Arguments that a class lists as ``unless_default`` are left out at their default, so that what was made
    before the class had them keeps its identity.
    """
    defaults, later = _defaults(call), getattr(call.target, "unless_default", ())
    return {
        name: canonical(value)
        for name, value in arguments_of(call).items()
        if not (name in later and value == defaults[name])
    }


def arguments_of(call: Spec[Any]) -> dict[str, Any]:
    """Return the arguments of a call by name: those that it states, and the defaults of the others."""
    return {**_defaults(call), **call.kwargs}


def _defaults(call: Spec[Any]) -> dict[str, Any]:
    parameters = inspect.signature(call.target).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _version(target: object) -> int:
    return int(getattr(target, "version", 1))


def _name(target: object) -> str:
    name = getattr(target, "__qualname__", "")
    module = getattr(target, "__module__", "")
    if not name or "<" in name or not module:
        raise BadInput(f"a class or function must be importable by name, but got {target!r}.")
    return str(name) if module.startswith("stillhouse.") else f"{module}.{name}"
