"""The calls of the Python interface: what the commands do, as functions. Import them from `stillhouse`.

Each call works in a workspace, a folder in which finished steps are kept: the same call again skips them,
and a call that was interrupted resumes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.cluster.connection import joins
from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import root_folder
from stillhouse.core.devices import require_device, resolve_device
from stillhouse.core.remotes import default_remote
from stillhouse.experiments.embedding import Embedding
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.memory import in_files
from stillhouse.sweeps.session import opened_workspace, session
from stillhouse.training.where import Where, threads_alone

if TYPE_CHECKING:
    from stillhouse.core.types import Encoder
    from stillhouse.experiments.preparation import Prepared
    from stillhouse.preflight.finding import Finding
    from stillhouse.sweeps.runs import Training
    from stillhouse.sweeps.verify import Checked


@dataclass(frozen=True)
class Trained:
    """A trained student.

    Attributes:
        folder: Folder of the last stage; `export` and `evaluate` take it.
        metrics: Dev figures by name.
        seconds: Duration of the last stage.
    """

    folder: Path
    metrics: Mapping[str, float]
    seconds: float


def embed(
    experiment: Experiment | None = None,
    *,
    root: Path | str | None = None,
    remote: str | None = None,
    local: bool = True,
    device: str = "auto",
    refresh: bool = False,
) -> "Prepared":
    """Read an experiment's data and run the teacher over it once.

    Args:
        experiment: The data and the teacher; None takes the defaults.
        root: The workspace's folder; None takes ``$STILLHOUSE_ROOT``, else ``./runs``.
        remote: Address of the remote that keeps the workspace for all nodes; None takes
            ``$STILLHOUSE_REMOTE``, and an empty one has none.
        local: Whether to work in this process; otherwise Ray is joined or started.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        refresh: Whether corpora are read again.

    Returns:
        The prepared data, and facts about it.

    Raises:
        BadInput: A file is missing or malformed, or the workspace is in use.
    """
    from stillhouse.experiments.preparation import prepare

    experiment = in_files(experiment or Experiment(), _folder(root))
    experiment.check()
    with session(_folder(root), device=_device(device), local=local, remote=_address(remote)) as (
        workspace,
        chosen,
    ):
        return prepare(experiment, workspace, Embedding(local=local, device=chosen), refresh=refresh)


def read_experiment(
    file: Path | str, *, scale: str = "", variant: str = "", data_root: Path | str = ""
) -> Experiment:
    """Read the fields of an experiment file: the data, teacher, student and budget.

    Args:
        file: The experiment file.
        scale: Name of a scale of the file, such as ``small``; empty takes the full size.
        variant: Name of a variant of the file; empty takes what all of them share.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for in the file; empty takes the environment's.

    Raises:
        BadInput: The file cannot be read, is invalid, or has no such scale or variant.
    """
    from stillhouse.search.experiment_file import load_base
    from stillhouse.sweeps.runs import chosen_runs, experiment_in

    root = str(data_root)
    if variant:
        (run,) = chosen_runs(file, scale=scale, variants=(variant,), data_root=root)
    else:
        run = load_base(file, scale=scale, data_root=root)
    return experiment_in(run, data_root=root)


def train(
    method: str = "",
    experiment: Experiment | None = None,
    *,
    file: Path | str | None = None,
    scale: str = "",
    variant: str = "",
    data_root: Path | str = "",
    values: Mapping[str, Any] | None = None,
    preset: str = "",
    root: Path | str | None = None,
    remote: str | None = None,
    local: bool = True,
    workers: int = 1,
    device: str = "auto",
) -> Trained:
    """Train one student with one method.

    Args:
        method: Name of the method, such as ``ibkd``; empty takes that of the file.
        experiment: The data, teacher, student and budget; None takes those of the file, or the defaults.
        file: Experiment file; its method, preset and values count where the call names no others.
        scale: Name of a scale of the file, such as ``small``; empty takes the full size.
        variant: Name of a variant of the file, which is needed where it has several.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for in the file; empty takes the environment's.
        values: Hyper-parameters that differ from the preset, or from the file.
        preset: One of the method's presets, such as ``paper`` or ``repo`` (`stillhouse presets METHOD`);
            empty takes that of the file, or ``paper``.
        root: The workspace's folder; None takes ``$STILLHOUSE_ROOT``, else ``./runs``.
        remote: Address of the remote that keeps the workspace for all nodes; None takes
            ``$STILLHOUSE_REMOTE``, and an empty one has none.
        local: Whether to work in this process; otherwise Ray is joined or started.
        workers: Training processes; more than one needs Ray or starts plain processes.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    from stillhouse.sweeps.curve import train_at

    training = _training(
        method,
        experiment,
        file,
        preset,
        scale=scale,
        variant=variant,
        data_root=data_root,
        values=values,
        root=root,
    )
    with session(
        _folder(root),
        device=_device(device),
        local=local,
        need=Need(workers, 1, None),
        remote=_address(remote),
    ) as (workspace, chosen):
        (point,) = train_at(
            (training.experiment.budget.fraction,),
            training.method,
            training.hp,
            training.experiment,
            workspace,
            Embedding(local=local, device=chosen),
            Where(device=chosen, threads=threads_alone(local=local, workers=workers), workers=workers),
            teacher=training.teacher,
        )
    return Trained(Path(point.folder), point.metrics, point.seconds)


def doctor(
    method: str = "",
    experiment: Experiment | None = None,
    *,
    file: Path | str | None = None,
    scale: str = "",
    variant: str = "",
    data_root: Path | str = "",
    values: Mapping[str, Any] | None = None,
    preset: str = "",
    root: Path | str | None = None,
    remote: str | None = None,
    workers: int = 1,
    device: str = "auto",
) -> "list[Finding]":
    """Check an experiment before a run: weights, vectors, prompts, lengths, temperature, disk and memory.

    Args:
        method: See `train`.
        experiment: See `train`.
        file: See `train`.
        scale: See `train`.
        variant: See `train`.
        data_root: See `train`.
        values: See `train`.
        preset: See `train`.
        root: See `train`.
        remote: See `train`.
        workers: Training processes of the run.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Returns:
        The findings, the worst first, each with ``level`` (``error``, ``warning`` or ``note``), ``check``,
        ``found`` and ``remedy``.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    from stillhouse.preflight.examination import examine

    plan = _training(
        method,
        experiment,
        file,
        preset,
        scale=scale,
        variant=variant,
        data_root=data_root,
        values=values,
        root=root,
    )
    with session(_folder(root), device=_device(device), local=True, remote=_address(remote)) as (
        workspace,
        chosen,
    ):
        return examine(plan.method, plan.hp, plan.experiment, workspace, device=chosen, workers=workers)


def sweep(
    method: str = "",
    experiment: Experiment | None = None,
    *,
    space: Path | str | None = None,
    section: str = "",
    scale: str = "",
    data_root: Path | str = "",
    values: Mapping[str, Any] | None = None,
    preset: str = "",
    trials: int = 8,
    sampler: str = "tpe",
    scheduler: str = "asha",
    objectives: Sequence[str] = ("quality",),
    name: str = "",
    register_anyway: bool = False,
    root: Path | str | None = None,
    remote: str | None = None,
    workers: int = 1,
    device: str = "auto",
    address: str | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Search a method's hyper-parameters, and deliver the best student. The same call resumes.

    Args:
        method: Name of the method, such as ``ibkd``; empty takes that of the experiment file.
        experiment: What all trials share; None takes the fields of the experiment file, or the defaults.
        space: Experiment file; without a search space in it, or for None, the method's own is searched.
        section: ``space`` (the grid) or ``continuous``; empty chooses by the sampler.
        scale: Name of a scale of the file, such as ``small``; empty takes the full size.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for in the file; empty takes the environment's.
        values: Hyper-parameters that are fixed.
        preset: Source of the hyper-parameters that are neither searched nor fixed: one of the method's
            presets, such as ``paper`` or ``repo``; empty takes that of the file, or ``paper``.
        trials: Number of trials in all; a larger number later extends the sweep.
        sampler: ``tpe``, ``random``, ``qmc`` or ``grid``.
        scheduler: Rule that stops weak trials early, such as ``asha``; ``none`` stops none.
        objectives: ``quality`` alone, or with ``size`` or ``latency``.
        name: Name of the sweep; empty takes the method's.
        register_anyway: Whether to register a student that is worse than the baseline on the test split.
        root: The workspace's folder; None takes ``$STILLHOUSE_ROOT``, else ``./runs``.
        remote: Address of the remote that keeps the workspace for all nodes; None takes
            ``$STILLHOUSE_REMOTE``, and an empty one has none.
        workers: Training processes per trial.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        address: Address of a Ray cluster; None takes the job's, or starts a local one.
        verbose: Whether the output of the libraries is shown.

    Returns:
        ``student``, ``teacher``, ``baseline``, ``untrained`` and ``trials``, as ``--json`` writes them.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    from stillhouse.methods import load_method
    from stillhouse.sweeps.checks import fixed_values, sweep_options
    from stillhouse.sweeps.runs import base_run, experiment_in
    from stillhouse.sweeps.sweep import sweep as run_sweep

    if experiment is not None:
        experiment = in_files(experiment, _folder(root))
    base = base_run(space, method=method, preset=preset, scale=scale, data_root=str(data_root))
    return run_sweep(
        sweep_options(
            base.method,
            experiment or experiment_in(base, data_root=str(data_root)),
            _folder(root),
            device=device if joins(address) else _device(device),
            need=Need(workers, 1, None),
            space=space,
            section=section,
            fixed=fixed_values(load_method(base.method), values or {}, "values"),
            scale=scale,
            data_root=str(data_root),
            preset=base.preset,
            sampler=sampler,
            scheduler=scheduler,
            trials=trials,
            name=name,
            objectives=tuple(objectives),
            address=address,
            verbose=verbose,
            register_anyway=register_anyway,
            remote=_address(remote),
        )
    )


def evaluate(
    model: str | Path,
    experiment: Experiment | None = None,
    *,
    final: bool = False,
    documents_by: str | Path | None = None,
    root: Path | str | None = None,
    remote: str | None = None,
    device: str = "auto",
) -> dict[str, float]:
    """Measure a model on an experiment's dev split, or on its locked test split.

    Args:
        model: A sweep's or a stage's name or folder, an export in any form, or a model's name or path.
        experiment: The data; None takes those of the sweep that the model is of, or the defaults.
        final: Whether the test split is opened; every opening is recorded in the workspace.
        documents_by: Also search documents that this model embeds, with the model's queries: ``teacher`` for
            a stage's own teacher, or a model's name or path.
        root: The workspace's folder; None takes ``$STILLHOUSE_ROOT``, else ``./runs``.
        remote: Address of the remote that keeps the workspace for all nodes; None takes
            ``$STILLHOUSE_REMOTE``, and an empty one has none.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Returns:
        Figures by name. With ``documents_by``, those of the model's queries among the other's documents have
        ``asymmetric`` in their names, and those of the other alone begin with ``teacher_``.

    Raises:
        BadInput: If there is no such model, the data cannot be read, or the model does not live in the space
            of ``documents_by``.
    """
    from stillhouse.experiments.fields import experiment_of
    from stillhouse.search.experiment_file import load_base
    from stillhouse.sweeps.begun import sweep_of_model
    from stillhouse.sweeps.measuring import measure_models

    with session(_folder(root), device=_device(device), local=True, remote=_address(remote)) as (
        workspace,
        chosen,
    ):
        file = sweep_of_model(str(model), workspace.root.resolve())
        found = measure_models(
            in_files(
                experiment or (experiment_of(load_base(file).experiment) if file else Experiment()),
                _folder(root),
            ),
            [str(model)],
            workspace,
            Embedding(local=True, device=chosen),
            final=final,
            documents_by=None if documents_by is None else str(documents_by),
        )
    beside = found.documents_by.figures if found.documents_by is not None else {}
    return {**found.figures, **{f"teacher_{name}": each.teacher for name, each in beside.items()}}


def export(
    stage: str | Path,
    folder: str | Path,
    *,
    form: str = "sentence-transformers",
    soup: "Sequence[str | Path]" = (),
    root: Path | str | None = None,
    remote: str | None = None,
) -> float:
    """Write a trained student in a form that others load.

    Args:
        stage: Folder or name of a finished stage, such as `Trained.folder`, or of a sweep, whose best student
            is exported.
        folder: Where to write.
        form: ``sentence-transformers``, ``onnx``, ``onnx-int8``, ``compact`` or ``asymmetric``.
        soup: Further stages or sweeps, such as other seeds; the mean of the weights is exported.
        root: The workspace's folder, in which names are looked up.
        remote: See `embed`.

    Returns:
        The lowest cosine between vectors of the exported and the trained student.

    Raises:
        BadInput: The stage is not finished, its student has no such form, or the students of the soup cannot
            be averaged.
    """
    from stillhouse.sweeps.export import export_stage
    from stillhouse.training.models import stage_of

    workspace = opened_workspace(_folder(root), _address(remote))
    first, *others = (stage_of(str(name), workspace) for name in (stage, *soup))
    return export_stage(first, Path(folder), form=form, soup=others)


def verify(root: Path | str | None = None, *, repair: bool = False) -> "list[Checked]":
    """Check everything in a workspace: texts, vectors, stages, checkpoints, studies, journals and exports.

    Args:
        root: See `embed`.
        repair: Whether what is damaged is mended: moved aside, so that the command that needs it makes it
            again, or replaced by its last good copy.

    Returns:
        Everything that was looked at, each with ``kind``, ``path``, ``problems``, ``cost`` (what mending it
        costs), ``mended`` and ``note``.

    Raises:
        BadInput: There is no such workspace, or it is to be repaired while a run is going on there.
    """
    from stillhouse.sweeps.verify import verify as verified

    return verified(_folder(root), repair=repair)


def load(
    model: str | Path,
    *,
    root: Path | str | None = None,
    remote: str | None = None,
    device: str = "auto",
) -> "Encoder":
    """Open a model that encodes texts: ``load(folder).encode(texts)`` gives vectors, (N, D).

    Args:
        model: A sweep's or a stage's name or folder, an export in any form, or a model's name or path.
        root: The workspace's folder, in which the names of sweeps and stages are looked up.
        remote: See `embed`.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.

    Raises:
        BadInput: If there is no such model.
    """
    from stillhouse.training.models import open_model

    encoder: Encoder = open_model(
        str(model), opened_workspace(_folder(root), _address(remote)), _device(device)
    )
    return encoder


def _training(
    method: str,
    experiment: Experiment | None,
    file: Path | str | None,
    preset: str,
    *,
    scale: str,
    variant: str,
    data_root: Path | str,
    values: Mapping[str, Any] | None,
    root: Path | str | None = None,
) -> "Training":
    """What `train` trains, checked; the arguments are those of `train`."""
    from stillhouse.sweeps.runs import chosen_runs, experiment_in, only_one, training_of

    variants = (variant,) if variant else ()
    runs = chosen_runs(
        file, method=method, preset=preset, scale=scale, variants=variants, data_root=str(data_root)
    )
    run = only_one(runs, str(file))
    if experiment is None:
        experiment = experiment_in(run, data_root=str(data_root)) if file is not None else Experiment()
    experiment = in_files(experiment, _folder(root))
    return training_of(run, experiment, values=values, source=str(file or ""), values_source="values")


def _address(remote: str | None) -> str:
    return default_remote() if remote is None else str(remote)


def _folder(root: Path | str | None) -> Path:

    return root_folder(root)


def _device(device: str) -> str:

    chosen = resolve_device(device)
    require_device(chosen)
    return chosen
