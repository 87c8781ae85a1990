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
    target = part.target
    arguments = {name: _plain(value) for name, value in part.kwargs.items()}
    return {"module": target.__module__, "name": target.__qualname__, "arguments": arguments}


def rebuild(description: Mapping[str, Any], **known: Any) -> nn.Module:
    """Build the student or objective that `describe` described, with its first weights.

    Args:
        description: The description.
        known: Arguments that are known only where it runs, such as ``student_dim``.

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
    arguments = {name: _value(value) for name, value in description["arguments"].items()}
    return Spec(class_of(description), arguments)


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


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return {"spec": describe(value)}
    if isinstance(value, Model):
        return {"model": dataclasses.asdict(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _value(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"spec"}:
        return spec_of(value["spec"])
    if isinstance(value, Mapping) and set(value) == {"model"}:
        prompts = value["model"].get("prompts")
        return Model(**{**value["model"], "prompts": prompts and Prompts(**prompts)})
    return tuple(_value(item) for item in value) if isinstance(value, list) else value
