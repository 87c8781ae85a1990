"""From a run of an experiment file, or of the command line, to what is trained: checked before any work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, require
from stillhouse.experiments.budget import Refit
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of, flattened, merged, opts_out, with_file
from stillhouse.experiments.teacher_weights import weighted_experiment, without_weights
from stillhouse.methods import Method, hyper_parameters, load_method, with_defaults
from stillhouse.search.experiment_file import Run, load_base, load_runs, variants_named
from stillhouse.sweeps.begun import ended_sweep, experiment_like, search_in_sweep
from stillhouse.sweeps.checks import check_plans, fixed_values, with_steps
from stillhouse.values.data import Teacher


@dataclass(frozen=True)
class Training:
    """A student that is to be trained.

    Attributes:
        name: Name of the variant; empty where there are none.
        method: The method.
        hp: Its hyper-parameters.
        experiment: The data, teacher, student and budget, with the method's own budgets.
        teacher: The experiment's teacher.
        notes: Lines to say of it when its work begins.
    """

    name: str
    method: Method
    hp: Any
    experiment: Experiment
    teacher: Teacher
    notes: tuple[str, ...] = ()

    def say_notes(self) -> None:
        """Say what was decided of it; call it where nothing is refused any more."""
        for note in self.notes:
            say(note)


def training_of(
    run: Run,
    experiment: Experiment,
    *,
    values: Mapping[str, Any] | None = None,
    source: str = "",
    values_source: str = "command line",
    fraction: float = 0.0,
) -> Training:
    """Put together what a run trains, and check its plan.

    The experiment has the run's fields, with whatever else was given. ``values`` come before those of the
    run. The sources are for messages. ``fraction`` is the smallest share of the rows that will be trained on;
    0 takes the experiment's.

    Raises:
        BadInput: The first thing that cannot be used.
    """
    method = load_method(run.method)
    chosen = {
        **fixed_values(method, run.values, source),
        **fixed_values(method, values or {}, values_source),
    }
    whole = with_defaults(method, weighted_experiment(experiment, chosen))
    whole = replace(whole, budget=replace(whole.budget, refit=Refit()))  # Only a sweep has a refit.
    least = changed(whole, {"budget.fraction": fraction}) if fraction else whole
    teacher = check_plans(method, least, [without_weights(chosen)], run.preset)
    hp = hyper_parameters(method, chosen, run.preset)
    notes: tuple[str, ...] = ()
    if not run.chosen:
        hp, notes = with_steps(method, hp, least, teacher, chosen)
    return Training(run.name, method, hp, whole, teacher, notes)


def chosen_runs(
    file: Path | str | None,
    *,
    method: str = "",
    preset: str = "",
    scale: str = "",
    variants: Sequence[str] = (),
    data_root: str = "",
) -> tuple[Run, ...]:
    """The runs of an experiment file, or the one of a named method.

    With another method than the file's, only the fields of the experiment are taken from the file.

    Args:
        file: The experiment file; None for none.
        method: Name of a method; empty takes the file's.
        preset: Name of a preset; empty takes the file's, or ``paper``.
        scale: Name of a scale of the file; empty takes the full size.
        variants: Names of variants of the file; none takes all of them.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for in the file; empty takes the environment's.

    Raises:
        BadInput: No method is named, or the file has no such variant or scale.
    """
    if file is None:
        refuse_without_file(scale=scale, variant=",".join(variants))
        return (_without_file(method, preset, "train", "--file FILE"),)
    runs = load_runs(file, scale=scale, data_root=data_root)
    chosen = variants_named(runs, list(variants), str(file))
    return tuple(_named(run, method, preset) for run in chosen)


def experiment_in(run: Run, *, data_root: str = "") -> Experiment:
    """The experiment that the fields of a run make.

    Args:
        run: A run of an experiment file.
        data_root: Folder with benchmarks, such as STS; empty takes that of the file or of the environment. A
            file that states an empty one keeps it.

    Raises:
        BadInput: An unknown field, or a value of another type or out of range.
    """
    own = data_root and not opts_out(run.experiment)
    given = {"selection.data_root": data_root} if own else {}
    return experiment_of(merged(with_file({}, run.experiment), given))


def base_run(
    file: Path | str | None, *, method: str = "", preset: str = "", scale: str = "", data_root: str = ""
) -> Run:
    """The method and the preset of a sweep: those that are named before those of an experiment file.

    `chosen_runs` explains the arguments.

    Raises:
        BadInput: No method is named, or the file has no such scale.
    """
    if file is None:
        refuse_without_file(scale=scale)
        return _without_file(method, preset, "sweep", "--space FILE")
    return _named(load_base(file, scale=scale, data_root=data_root), method, preset)


def sweep_run(
    search: Mapping[str, Any], root: Path, method: str, preset: str, experiment: Experiment | None
) -> tuple[Run, Mapping[str, Any], Experiment]:
    """The method and preset of a sweep, its search and its experiment, which another sweep may state.

    ``search`` has the keywords of `Search`. Without an experiment, that of ``like`` or of the file is taken.

    Raises:
        BadInput: See `base_run`; or ``like`` names no sweep that has delivered its student.
    """
    file, data_root = search.get("space"), str(search.get("data_root", ""))
    begun = ended_sweep(search["like"], root.resolve()) if search.get("like") else None
    scale = search.get("scale", "")
    base = base_run(file or begun, method=method, preset=preset, scale=scale, data_root=data_root)
    if begun:
        own = {} if method or file else {"space": begun}
        search = {**search_in_sweep(begun), **search, **own}
        experiment = experiment or experiment_like(begun, flattened(base.experiment if file else {}))
    return base, search, experiment or experiment_in(base, data_root=data_root)


def only_one(runs: Sequence[Run], file: Path | str) -> Run:
    """The only run of a file, for a call that trains one student.

    Raises:
        BadInput: There are several; they are listed.
    """
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise BadInput(
            f"a call must be for one student, but {file} has the variants {names}. Name one with variant."
        )
    return runs[0]


def _without_file(method: str, preset: str, command: str, flag: str) -> Run:
    remedy = f"Such as `stillhouse {command} ibkd`, or give {flag}."
    require(bool(method), "a method must be named", remedy=remedy)
    return Run("", method, preset or "paper", chosen=bool(preset))


def _named(run: Run, method: str, preset: str) -> Run:
    if method not in ("", run.method):
        run = replace(run, method=method, preset="paper", values={})
    return replace(run, preset=preset or run.preset, chosen=run.chosen or bool(preset))


def refuse_without_file(**given: str) -> None:
    """Refuse what only an experiment file has.

    Raises:
        BadInput: One of the flags is given, by its name.
    """
    for name, value in given.items():
        require(
            not value,
            f"--{name} must go with an experiment file",
            **{name: value},
            remedy="Give the file (--file, or --space of a sweep).",
        )
