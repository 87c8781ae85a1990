"""Specs of students and objectives as JSON: a stage's folder is opened without the plan that made it."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec
from stillhouse.core.roles import Prompts
from stillhouse.values.data import Model


def describe(part: Spec[Any]) -> dict[str, Any]:
    """Return the module, name and arguments of a spec as plain data.

    An argument may be a spec itself, such as the loss of an objective. A `Model` keeps its folder, where its
    configuration and tokenizer are.
    """
    return _described(part.target, part.kwargs)


def _described(target: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: to_plain(value) for name, value in arguments.items()}
    return {"module": target.__module__, "name": target.__qualname__, "arguments": plain}


def rebuild(description: Mapping[str, Any], **known: Any) -> nn.Module:
    """Build the student or objective that `describe` described, with its first weights.

    Arguments that are known only where it runs, such as ``student_dim``, are given by name.

    Raises:
        BadInput: A class no longer exists.
    """
    part: nn.Module = spec_of(description).build(**known)
    return part


def spec_of(description: Mapping[str, Any]) -> Spec[Any]:
    """Return the spec that `describe` described.

    Raises:
        BadInput: A class no longer exists.
    """
    return Spec(class_of(description), _arguments(description))


def _arguments(description: Mapping[str, Any]) -> dict[str, Any]:
    return {name: from_plain(value) for name, value in description["arguments"].items()}


def class_of(description: Mapping[str, Any]) -> type[nn.Module]:
    """Return the class of a description.

    Raises:
        BadInput: The class no longer exists.
    """
    try:
        return getattr(importlib.import_module(description["module"]), description["name"])  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"the class of a trained part must exist, but: {error}. Open it with the version that trained it."
        ) from None


def to_plain(value: Any) -> Any:
    """Return a value of a plan, such as a suite, as plain data, from which `from_plain` makes it again."""
    if isinstance(value, Spec):
        return {"spec": describe(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"value": _described(type(value), fields)}
    if isinstance(value, Mapping):
        return {"items": {name: to_plain(item) for name, item in value.items()}}
    return [to_plain(item) for item in value] if isinstance(value, tuple | list) else value


def from_plain(value: Any) -> Any:
    """Make a value of a plan from what `to_plain` returned.

    Raises:
        BadInput: A class no longer exists.
    """
    if isinstance(value, Mapping) and set(value) == {"spec"}:
        return spec_of(value["spec"])
    if isinstance(value, Mapping) and set(value) == {"value"}:
        made: Any = class_of(value["value"])
        return made(**_arguments(value["value"]))
    if isinstance(value, Mapping) and set(value) == {"model"}:  # As stages had it until 2026-12-01.
        prompts = value["model"].get("prompts")
        return Model(**{**value["model"], "prompts": prompts and Prompts(**prompts)})
    if isinstance(value, Mapping) and set(value) == {"items"}:
        return {name: from_plain(item) for name, item in value["items"].items()}
    return tuple(from_plain(item) for item in value) if isinstance(value, list) else value
