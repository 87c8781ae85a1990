"""A method on the command line: its runs, and hyper-parameters that are fixed."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from stillhouse.cli.parsed_values import experiment_from, is_path, require_corpus, settings
from stillhouse.search.experiment_file import Run
from stillhouse.sweeps.checks import fixed_values
from stillhouse.sweeps.runs import Training, chosen_runs, training_of

if TYPE_CHECKING:
    from stillhouse.methods import Method


def given_of(options: Namespace) -> dict[str, Any]:
    """The hyper-parameters that `--set` names."""
    return {name: value for name, value in settings(options.set).items() if not is_path(name)}


def fixed_of(options: Namespace, method: "Method") -> dict[str, Any]:
    """The hyper-parameters that `--set` fixes, in the types that the method declares."""
    return fixed_values(method, given_of(options), "command line")


def runs_of(options: Namespace) -> tuple[Run, ...]:
    """The runs of the `--file`, or the one of the command line; what the command line names comes first.

    Raises:
        BadInput: No method is named, or the file has no such variant or scale.
    """
    return chosen_runs(
        options.file or options.begun,
        method=options.method or "",
        preset=options.preset or "",
        scale=options.scale,
        variants=options.variant.split(",") if options.variant else (),
        data_root=options.data_root or "",
    )


def trainings_of(options: Namespace, fraction: float = 0.0) -> list[Training]:
    """Return the trainings that the command line asks for, one per variant, checked.

    Args:
        options: The command line.
        fraction: Smallest share of the rows that will be trained on; 0 takes the experiment's.

    Raises:
        BadInput: The first thing that cannot be used, or a corpus that does not exist.
    """
    trainings = [
        training_of(
            run,
            experiment_from(options, run.experiment if options.file or not options.begun else None),
            values=given_of(options),
            source=str(options.file or options.begun or ""),
            fraction=fraction,
        )
        for run in runs_of(options)
    ]
    for training in trainings:
        require_corpus(training.experiment)
    return trainings
