"""What a command line names: a sweep, trainings or experiments, and hyper-parameters that are fixed."""

from argparse import Namespace
from typing import Any

from stillhouse.cli.parsed_values import asked, experiment_from, is_path, require_corpus, settings
from stillhouse.experiments.experiment import Experiment
from stillhouse.methods import Method, load_method
from stillhouse.search.experiment_file import Run
from stillhouse.search.keywords import Search
from stillhouse.search.options import SweepOptions
from stillhouse.sweeps.begun import search_in_sweep
from stillhouse.sweeps.checks import fixed_values, sweep_options
from stillhouse.sweeps.runs import Training, base_run, chosen_runs, refuse_without_file, training_of


def given_of(options: Namespace) -> dict[str, Any]:
    """The hyper-parameters that `--set` names."""
    return {name: value for name, value in settings(options.set).items() if not is_path(name)}


def fixed_of(options: Namespace, method: Method) -> dict[str, Any]:
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

    ``fraction`` is the smallest share of the rows that will be trained on; 0 takes the experiment's own.

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


def experiments_of(options: Namespace) -> dict[str, Experiment]:
    """The experiment of the command line, or those of a file's variants by name."""
    if options.file:
        return {training.name: training.experiment for training in trainings_of(options)}
    refuse_without_file(scale=options.scale, variant=options.variant)
    experiment = experiment_from(options)
    require_corpus(experiment)
    return {"": experiment}


def chosen_sweep(options: Namespace) -> SweepOptions:
    """The sweep that a command line asks for, checked.

    Raises:
        BadInput: The first thing that cannot be used, or a corpus that does not exist.
    """
    begun = options.begun
    search = {**(search_in_sweep(begun) if begun else {}), **asked(options, Search)}
    base = base_run(
        options.space or begun,
        method=options.method or "",
        preset=options.preset or "",
        scale=options.scale,
        data_root=options.data_root or "",
    )
    if begun and not (options.method or options.space):
        search["space"] = begun
    fields = {} if begun and not options.space else base.experiment
    fixed = fixed_of(options, load_method(base.method))
    experiment = experiment_from(options, fields)
    chosen = sweep_options(base.method, experiment, fixed=fixed, preset=base.preset, **search)
    require_corpus(chosen.experiment)
    return chosen
