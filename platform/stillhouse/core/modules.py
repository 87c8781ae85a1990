"""Parts of the package that are found by file name, so that adding one is adding a file."""

import importlib
import os
import pkgutil
from collections.abc import Iterable
from typing import Any

from stillhouse.core.errors import BadInput, nearest


def module_names(folders: Iterable[str]) -> list[str]:
    """List the modules in a package's ``__path__`` without importing them.

    Raises:
        OSError: The system does not let a folder be read, which `pkgutil` takes for an empty one.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(folders))
    if not names:
        for folder in folders:
            os.listdir(folder)
    return names


def load_module(package: str, names: list[str], name: str, kind: str) -> Any:
    """Import one of a package's modules, of a kind such as ``sampler``, by a name that the user gave.

    Raises:
        BadInput: Unknown name; the message lists the nearest ones.
    """
    if name not in names:
        raise BadInput(f"unknown {kind} {name!r}. {nearest(name, names)}")
    return importlib.import_module(f"{package}.{name}")


def named(place: str) -> Any:
    """Import what a value names as ``module:name``, when it is needed: values stay light."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
