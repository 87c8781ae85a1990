"""Suites of published benchmarks: one file is one suite, found by its file name.

A suite is a module with the three names of `evaluation.benchmark.Suite`: ``prepare(root, options)``,
``NEEDS_DATA`` and ``MTEB_TASKS``. Where it has flags of its own, it also has ``FLAGS``, a literal:
what argparse's ``add_argument`` takes, by the flag's name, with the type as a word (``path``, ``int``,
``float``). A new file here is a new suite; there is no list to edit. Listing the names and the flags imports
none of them, so ``--help`` can print them.
"""

import ast
import functools
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stillhouse.core.errors import BadInput, nearest
from stillhouse.core.modules import module_names

if TYPE_CHECKING:
    from stillhouse.evaluation.benchmark import Suite


def known_suites() -> list[str]:
    """List the names of all suites."""
    return module_names(__path__)


@dataclass(frozen=True)
class SuiteFlag:
    """A flag that belongs to one suite, with what argparse's ``add_argument`` takes."""

    name: str
    suite: str
    arguments: Mapping[str, Any]

    @property
    def option(self) -> str:
        """The flag as it is written: ``--keep-vectors``."""
        return "--" + self.name.replace("_", "-")

    @property
    def default(self) -> Any:
        """Its value where it is not given."""
        return self.arguments.get("default", False if "action" in self.arguments else None)


def suite_flags() -> tuple[SuiteFlag, ...]:
    """Read the flags of all suites from their files; no suite is imported."""
    return tuple(flag for name in known_suites() for flag in _flags_of(name))


@functools.cache
def _flags_of(suite: str) -> tuple[SuiteFlag, ...]:
    found = importlib.util.find_spec(f"{__name__}.{suite}")
    assert found is not None and found.origin is not None, f"{suite} is a file"
    for line in ast.parse(Path(found.origin).read_text(encoding="utf-8")).body:
        if isinstance(line, ast.Assign) and [getattr(name, "id", "") for name in line.targets] == ["FLAGS"]:
            flags: dict[str, dict[str, Any]] = ast.literal_eval(line.value)
            return tuple(SuiteFlag(name, suite, _arguments(given)) for name, given in flags.items())
    return ()


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    types = {"path": Path, "int": int, "float": float}
    return {key: types[value] if key == "type" else value for key, value in given.items()}


def load_suite(name: str) -> "Suite":
    """Import a suite.

    Raises:
        BadInput: If there is no such suite; the message lists similar names.
    """
    if name not in known_suites():
        raise BadInput(f"unknown suite `{name}`. {nearest(name, known_suites())}")
    return cast("Suite", importlib.import_module(f"{__name__}.{name}"))
