"""A student's spec as JSON, so that the folder of a stage can be opened without the plan that made it."""

import importlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from stillhouse.errors import BadInput
from stillhouse.plan import Model
from stillhouse.spec import Spec


def describe(student: Spec[Any]) -> dict[str, Any]:
    """Module, class and arguments; a `Model` keeps its folder, where its configuration and tokenizer are."""
    target = student.target
    arguments = {name: _plain(value) for name, value in student.kwargs.items()}
    return {"module": target.__module__, "name": target.__qualname__, "arguments": arguments}


def rebuild(description: Mapping[str, Any]) -> nn.Module:
    """The student that `describe` described, with the weights that it starts from.

    Raises:
        BadInput: There is no such class any more.
    """
    try:
        target = getattr(importlib.import_module(description["module"]), description["name"])
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"the student's class must exist, but: {error}. Open it with the version that trained it."
        ) from None
    arguments = {name: _value(value) for name, value in description["arguments"].items()}
    student: nn.Module = target(**arguments)
    return student


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return {"model": {"sha256": value.sha256, "name": value.name, "path": value.path}}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _value(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"model"}:
        return Model(**value["model"])
    return tuple(_value(item) for item in value) if isinstance(value, list) else value
