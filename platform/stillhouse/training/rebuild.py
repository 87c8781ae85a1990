"""A student's or objective's spec as JSON: a stage's folder is opened without the plan that made it."""

import importlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec
from stillhouse.plan.data import Model


def describe(part: Spec[Any]) -> dict[str, Any]:
    """Module, class and arguments; a `Model` keeps its folder, where its configuration and tokenizer are."""
    target = part.target
    arguments = {name: _plain(value) for name, value in part.kwargs.items()}
    return {"module": target.__module__, "name": target.__qualname__, "arguments": arguments}


def rebuild(description: Mapping[str, Any], **known: Any) -> nn.Module:
    """The student or objective that `describe` described, with the weights that it starts from.

    Args:
        description: What `describe` gave.
        known: What is added where it is wanted, such as ``student_dim``.

    Raises:
        BadInput: There is no such class any more.
    """
    target = class_of(description)
    arguments = {name: _value(value) for name, value in description["arguments"].items()}
    part: nn.Module = Spec(target, arguments).build(**known)
    return part


def class_of(description: Mapping[str, Any]) -> type[nn.Module]:
    """The class that `describe` described.

    Raises:
        BadInput: There is no such class any more.
    """
    try:
        return getattr(importlib.import_module(description["module"]), description["name"])  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"the class of a trained part must exist, but: {error}. Open it with the version that trained it."
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return {"model": {"sha256": value.sha256, "name": value.name, "path": value.path}}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _value(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"model"}:
        return Model(**value["model"])
    return tuple(_value(item) for item in value) if isinstance(value, list) else value
