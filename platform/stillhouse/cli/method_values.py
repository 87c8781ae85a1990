"""What the command line says of a method: hyper-parameters that are fixed, and the experiment file."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from stillhouse.cli.options import is_path, settings
from stillhouse.search.space import load_experiment
from stillhouse.sweeps.checks import fixed_values

if TYPE_CHECKING:
    from stillhouse.methods import Method


def fixed_of(options: Namespace, method: "Method") -> dict[str, Any]:
    """The hyper-parameters that `--set` fixes, in the types that the method declares."""
    given = {name: value for name, value in settings(options.set).items() if not is_path(name)}
    return fixed_values(method, given, "command line")


def file_of(options: Namespace) -> dict[str, Any]:
    """Return the fields in the `--file`, or none without one."""
    return load_experiment(options.file) if options.file else {}
