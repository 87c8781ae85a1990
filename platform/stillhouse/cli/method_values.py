"""What the command line says of a method: its runs, and hyper-parameters that are fixed."""

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stillhouse.cli.options import is_path, settings
from stillhouse.core.errors import require
from stillhouse.search.experiment_file import Run, load_base, load_runs, variants_named
from stillhouse.sweeps.checks import fixed_values

if TYPE_CHECKING:
    from stillhouse.methods import Method


def fixed_of(options: Namespace, method: "Method") -> dict[str, Any]:
    """The hyper-parameters that `--set` fixes, in the types that the method declares."""
    given = {name: value for name, value in settings(options.set).items() if not is_path(name)}
    return fixed_values(method, given, "command line")


def runs_of(options: Namespace) -> tuple[Run, ...]:
    """The runs of the `--file`, or the one of the command line; what the command line names comes first.

    With another method than the file's, only the fields of the experiment are taken from the file.

    Raises:
        BadInput: No method is named, or the file has no such variant or scale.
    """
    if not options.file:
        named = bool(options.method)
        require(
            named, "a method must be named", remedy="Such as `stillhouse train ibkd`, or give --file FILE."
        )
        _refuse_without_file(options, "--file")
        return (Run("", options.method, options.preset or "paper"),)
    runs = load_runs(options.file, scale=options.scale, data_root=options.data_root or "")
    names = options.variant.split(",") if options.variant else []
    return tuple(_named(run, options) for run in variants_named(runs, names, options.file))


def base_of(options: Namespace, file: str | None) -> Run:
    """The method and the preset of a sweep: those of the command line before those of an experiment file.

    Raises:
        BadInput: No method is named, or the file has no such scale.
    """
    if file is None:
        _refuse_without_file(options, "--space")
        require(
            bool(options.method),
            "a method must be named",
            remedy="Such as `stillhouse sweep ibkd`, or give --space FILE.",
        )
        return Run("", options.method, options.preset or "paper")
    return _named(load_base(file, scale=options.scale, data_root=options.data_root or ""), options)


def _named(run: Run, options: Namespace) -> Run:
    own = options.method in (None, run.method)
    if not own:
        run = replace(run, method=options.method, preset="paper", values={})
    return replace(run, preset=options.preset or run.preset)


def _refuse_without_file(options: Namespace, flag: str) -> None:
    for name in ("scale", "variant"):
        given = getattr(options, name, "")
        require(
            not given, f"--{name} must go with an experiment file", **{name: given}, remedy=f"Give {flag}."
        )
