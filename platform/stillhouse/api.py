"""The calls of the Python interface: what the commands do, as functions. Import them from `stillhouse`.

Each call works in a workspace, a folder in which finished steps are kept: the same call again skips them,
and a call that was interrupted resumes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from stillhouse.core.artifacts import Workspace, root_folder
from stillhouse.core.cache import limit_to
from stillhouse.core.errors import require
from stillhouse.core.remotes import default_remote
from stillhouse.experiments.budget import DISTIL, Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import experiment_of
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.experiments.text_in_memory import in_files
from stillhouse.methods import load_method
from stillhouse.preflight.examination import examine
from stillhouse.preflight.finding import Finding
from stillhouse.reports.comparison import compared
from stillhouse.reports.row_table import Rows
from stillhouse.search.experiment_file import load_base
from stillhouse.search.keywords import Place, Resources, Search, refuse_unknown
from stillhouse.search.options import SweepOptions
from stillhouse.sweeps.begun import sweep_of_model
from stillhouse.sweeps.checks import fixed_values, sweep_options
from stillhouse.sweeps.measuring import measure_models
from stillhouse.sweeps.results import Exported, Trained
from stillhouse.sweeps.runs import Training, chosen_runs, experiment_in, only_one, sweep_run, training_of
from stillhouse.sweeps.session import device_of, need_of, opened_workspace, session_of, where_of
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.tracking.location import tracking_uri
from stillhouse.training.models import open_model, stage_of

if TYPE_CHECKING:
    from stillhouse.core.types import Encoder
    from stillhouse.sweeps.workspace_check import Checked


class FromFile(Resources, total=False):
    """An experiment file, and what a training may use (`Resources`).

    Attributes:
        file: Experiment file; its method, preset and values count where the call names no others.
        scale: Name of a scale of the file, such as ``small``; empty takes the full size.
        variant: Name of a variant of the file, which is needed where it has several.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for in the file; empty takes the environment's.
    """

    file: Path | str | None
    scale: str
    variant: str
    data_root: Path | str


def distil(
    teacher: str | TeacherChoice,
    texts: Any,
    *,
    pairs: Any = None,
    method: str = "",
    layers: str | tuple[int, ...] = "spread",
    examples: int = 0,
    evaluations: int = 5,
    values: Mapping[str, Any] | None = None,
    max_length: int = 0,
    seed: int = 0,
    **place: Unpack[Place],
) -> Trained:
    """Distil a student from a teacher on texts: `train` in one line.

    Args:
        teacher: Name or folder of the large model.
        texts: A list, a column of a DataFrame or of a dataset, of which a tenth is held out for dev and for
            test each; or `Sentences`.
        pairs: Labelled rows of a query and a passage to fine-tune on afterwards, or `Pairs`.
        method: Name of the method; empty takes ``leaf``, which reads texts alone and leaves the student in
            its teacher's space, or ``mse`` where there are pairs.
        layers: Layers of the teacher that the student keeps; see `TransformerChoice`.
        examples: Texts that the student sees; 0 sees each text once, or 8,192 in all where there are fewer.
        evaluations: Measurements on dev on the way, for the curve.
        values: Hyper-parameters that differ from the method's; of ``leaf`` alone, the learning rate is 1e-3
            where it is not given, as its paper trains for much longer.
        max_length: Tokens per text; 0 takes what the teacher reads.
        seed: Seed of the training.
        place: `Place`.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    require(texts is not None, "`distil` must be given texts", texts=texts)
    sentences = texts if isinstance(texts, Sentences) else Sentences(texts=texts)
    if sentences.texts is not None:
        examples = examples or max(len(sentences.texts), DISTIL)
    labelled = () if pairs is None else (pairs if isinstance(pairs, Pairs) else Pairs(rows=pairs),)
    experiment = Experiment(
        teacher=teacher,
        student=TransformerChoice(layers=layers),
        data=(sentences, *labelled),
        budget=Budget(distil=examples, evaluations=evaluations),
        max_length=max_length,
        seed=seed,
    )
    method = method or ("leaf" if pairs is None else "mse")
    quick = {"learning_rate": 1e-3} if method == "leaf" else {}
    return train(method, experiment, values={**quick, **(values or {})}, **place)


def embed(
    experiment: Experiment | None = None,
    *,
    local: bool = True,
    **resources: Unpack[Resources],
) -> Prepared:
    """Read an experiment's data and run the teacher over it once.

    Args:
        experiment: The data and the teacher; None takes the defaults.
        local: Whether to work in this process; otherwise Ray is joined or started.
        resources: `Resources`.

    Returns:
        The prepared data, and facts about it.

    Raises:
        BadInput: A file is missing or malformed, or the workspace is in use.
    """
    refuse_unknown(resources, Resources)
    experiment = in_files(experiment or Experiment(), root_folder(resources.get("root")))
    experiment.check()
    with session_of(resources, local=local) as (workspace, device):
        embedding = Embedding(actors=resources.get("actors", 0), local=local, device=device)
        return prepare(experiment, workspace, embedding, refresh=resources.get("refresh", False))


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
    values: Mapping[str, Any] | None = None,
    preset: str = "",
    local: bool = True,
    **others: Unpack[FromFile],
) -> Trained:
    """Train one student with one method.

    Args:
        method: Name of the method, such as ``ibkd``; empty takes that of the file.
        experiment: The data, teacher, student and budget; None takes those of the file, or the defaults.
        values: Hyper-parameters that differ from the preset, or from the file.
        preset: One of the method's presets, such as ``paper`` or ``repo`` (`stillhouse presets METHOD`);
            empty takes that of the file, or ``paper``.
        local: Whether to work in this process; otherwise Ray is joined or started. Several workers are plain
            processes then.
        others: `FromFile`: an experiment file, and what the training may use.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    from stillhouse.sweeps.curve import train_at

    with _training(method, experiment, values, preset, local, others) as (training, workspace, device):
        (point,) = train_at(
            (training.experiment.budget.fraction,),
            training.method,
            training.hp,
            training.experiment,
            workspace,
            Embedding(actors=others.get("actors", 0), local=local, device=device),
            where_of(others, device, local=local),
            refresh=others.get("refresh", False),
            teacher=training.teacher,
        )
    return Trained(Path(point.folder), point.metrics, point.seconds)


def doctor(
    method: str = "",
    experiment: Experiment | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    preset: str = "",
    **others: Unpack[FromFile],
) -> list[Finding]:
    """Check what `train` would do: weights, vectors, prompts, lengths, temperature, disk and memory.

    The arguments are those of `train`.

    Returns:
        The findings, the worst first, each with ``level`` (``error``, ``warning`` or ``note``), ``check``,
        ``found`` and ``remedy``.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    workers = others.pop("workers", 1)
    with _training(method, experiment, values, preset, True, others) as (training, workspace, device):
        return examine(
            training.method, training.hp, training.experiment, workspace, device=device, workers=workers
        )


def plan(
    method: str = "",
    experiment: Experiment | None = None,
    *,
    trials: int = 0,
    values: Mapping[str, Any] | None = None,
    preset: str = "",
    local: bool = True,
    **others: Unpack[FromFile],
) -> Rows:
    """Say what a training or a sweep will take on this machine, before it is run.

    Args:
        method: See `train`.
        experiment: See `train`.
        trials: Number of trials of a sweep with the method's own search space; 0 plans one training.
        values: See `train`.
        preset: See `train`.
        local: See `train`; a sweep always runs on Ray.
        others: See `train`.

    Returns:
        A table: seconds of each part and in all, gigabytes on the disk and of memory.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    from stillhouse.sweeps.planning.command_plan import Request, plan_sweep, plan_training

    need, actors = need_of(others), others.get("actors", 0)
    if trials:
        search: dict[str, Any] = {**others, "space": others.get("file"), "trials": trials}
        search.pop("file", None)
        options = _sweep(method, experiment, values, preset, search)
        with session_of(others, local=True) as (workspace, device):
            request = Request(need=need, actors=actors, device=device)
            return plan_sweep(options.on(device), workspace, request).rows()
    with _training(method, experiment, values, preset, True, others) as (training, workspace, device):
        request = Request(local=local, need=need, actors=actors, device=device)
        return plan_training(training, workspace, request, refresh=others.get("refresh", False)).rows()


def sweep(
    method: str = "",
    experiment: Experiment | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    preset: str = "",
    **search: Unpack[Search],
) -> dict[str, Any]:
    """Search a method's hyper-parameters, and deliver the best student. The same call resumes.

    Args:
        method: Name of the method, such as ``ibkd``; empty takes that of the experiment file.
        experiment: What all trials share; None takes the fields of the experiment file, or the defaults.
        values: Hyper-parameters that are fixed.
        preset: Source of the hyper-parameters that are neither searched nor fixed: one of the method's
            presets, such as ``paper`` or ``repo``; empty takes that of the file, or ``paper``.
        search: `Search`: the options of `stillhouse sweep`, with its defaults.

    Returns:
        ``student``, ``teacher``, ``baseline``, ``untrained`` and ``trials``, as ``--json`` writes them.

    Raises:
        BadInput: If an input cannot be used; the message says why and what to do.
    """
    from stillhouse.sweeps.sweep import sweep as run_sweep

    return run_sweep(_sweep(method, experiment, values, preset, search))


def compare(
    *runs: str,
    experiment: str = "",
    root: Path | str | None = None,
) -> Rows:
    """Compare sweeps or runs by what MLflow holds; `stillhouse compare` also writes tables and figures.

    Args:
        runs: Names of sweeps, or names or ids of runs.
        experiment: Name of an MLflow experiment instead, for all of its runs.
        root: The workspace's folder; None takes ``$STILLHOUSE_ROOT``, else ``./runs``.

    Returns:
        A table with one row per trial and per tested model: hyper-parameters that differ, and all figures.

    Raises:
        BadInput: There are no such runs.
    """
    return compared(runs, experiment, tracking_uri(root_folder(root)))


def evaluate(
    model: str | Path,
    experiment: Experiment | None = None,
    *,
    final: bool = False,
    documents_by: str | Path | None = None,
    pooling: str = "",
    normalize: bool | None = None,
    **place: Unpack[Place],
) -> dict[str, float]:
    """Measure a model on an experiment's dev split, or on its locked test split.

    Args:
        model: A sweep's or a stage's name or folder, an export in any form, or a model's name or path.
        experiment: The data; None takes those of the sweep that the model is of, or the defaults.
        final: Whether the test split is opened; every opening is recorded in the workspace.
        documents_by: Also search documents that this model embeds, with the model's queries: ``teacher`` for
            a stage's own teacher, or a model's name or path.
        pooling: The pooling of a published model whose folder states none, such as ``cls``.
        normalize: Whether the vectors of such a model have length 1.
        place: `Place`.

    Returns:
        Figures by name. With ``documents_by``, those of the model's queries among the other's documents have
        ``asymmetric`` in their names, and those of the other alone begin with ``teacher_``.

    Raises:
        BadInput: If there is no such model, the data cannot be read, or the model does not live in the space
            of ``documents_by``.
    """
    refuse_unknown(place, Place)
    with session_of(place, local=True) as (workspace, device):
        if experiment is None:
            file = sweep_of_model(str(model), workspace.root)
            experiment = experiment_of(load_base(file).experiment) if file else Experiment()
        found = measure_models(
            in_files(experiment, workspace.root),
            [str(model)],
            workspace,
            Embedding(local=True, device=device),
            final=final,
            documents_by=None if documents_by is None else str(documents_by),
            head=(pooling, normalize),
        )
    beside = found.documents_by.figures if found.documents_by is not None else {}
    return {**found.figures, **{f"teacher_{name}": each.teacher for name, each in beside.items()}}


def export(
    stage: str | Path,
    folder: str | Path,
    *,
    form: str = "sentence-transformers",
    soup: Sequence[str | Path] = (),
    root: Path | str | None = None,
    remote: str | None = None,
) -> Exported:
    """Write a trained student in a form that others load.

    Args:
        stage: Folder or name of a finished stage, such as `Trained.folder`, or of a sweep, whose best student
            is exported.
        folder: Where to write.
        form: ``sentence-transformers``, ``onnx``, ``onnx-int8``, ``compact`` or ``asymmetric``.
        soup: Further stages or sweeps, such as other seeds; the mean of the weights is exported.
        root: The workspace's folder, in which names are looked up.
        remote: See `Place`.

    Returns:
        The folder, its size in MB, and the lowest cosine between vectors of the exported and the trained
        student.

    Raises:
        BadInput: The stage is not finished, its student has no such form, or the students of the soup cannot
            be averaged.
    """
    from stillhouse.sweeps.stage_export import check_form, exported

    check_form(form)
    workspace = opened_workspace(root_folder(root), default_remote() if remote is None else remote)
    first, *others = (stage_of(str(name), workspace) for name in (stage, *soup))
    return exported(first, Path(folder), form=form, soup=others)


def verify(root: Path | str | None = None) -> "list[Checked]":
    """Check everything in a workspace: texts, vectors, stages, checkpoints, studies, journals and exports.

    Args:
        root: See `Place`.

    Returns:
        Everything that was looked at, each with ``kind``, ``path``, ``problems``, ``remedy`` and ``note``.

    Raises:
        BadInput: There is no such workspace.
    """
    from stillhouse.sweeps.workspace_check import verify as verified

    return verified(root_folder(root))


def load(
    model: str | Path, *, pooling: str = "", normalize: bool | None = None, **place: Unpack[Place]
) -> "Encoder":
    """Open a model that encodes texts: ``load(folder).encode(texts)`` gives vectors, (N, D).

    Args:
        model: A sweep's or a stage's name or folder, an export in any form, or a model's name or path.
        pooling: The pooling of a published model whose folder states none, such as ``cls``.
        normalize: Whether the vectors of such a model have length 1.
        place: `Place`.

    Raises:
        BadInput: If there is no such model, or its folder states another head.
    """
    refuse_unknown(place, Place)
    limit_to(place.get("cache_gb"))
    remote = place.get("remote")
    workspace = opened_workspace(
        root_folder(place.get("root")), default_remote() if remote is None else str(remote)
    )
    device = device_of(place, local=True)
    encoder: Encoder = open_model(str(model), workspace, device, pooling=pooling, normalize=normalize)
    return encoder


@contextmanager
def _training(
    method: str,
    experiment: Experiment | None,
    values: Mapping[str, Any] | None,
    preset: str,
    local: bool,
    others: FromFile,
) -> Iterator[tuple[Training, Workspace, str]]:
    """Check what `train` trains, then yield it with the opened workspace and the device."""
    refuse_unknown(others, FromFile)
    file, variant, data_root = others.get("file"), others.get("variant", ""), str(others.get("data_root", ""))
    runs = chosen_runs(
        file,
        method=method,
        preset=preset,
        scale=others.get("scale", ""),
        variants=(variant,) if variant else (),
        data_root=data_root,
    )
    run = only_one(runs, str(file))
    if experiment is None:
        experiment = experiment_in(run, data_root=data_root) if file is not None else Experiment()
    experiment = in_files(experiment, root_folder(others.get("root")))
    training = training_of(run, experiment, values=values, source=str(file or ""), values_source="values")
    with session_of(others, local=local) as (workspace, device):
        training.say_notes()
        yield training, workspace, device


def _sweep(
    method: str,
    experiment: Experiment | None,
    values: Mapping[str, Any] | None,
    preset: str,
    search: Mapping[str, Any],
) -> SweepOptions:
    """Check what `sweep` searches, and put its options together."""
    refuse_unknown(search, Search)
    root = root_folder(search.get("root"))
    base, search, experiment = sweep_run(search, root, method, preset, experiment)
    fixed = fixed_values(load_method(base.method), values or {}, "values")
    return sweep_options(base.method, in_files(experiment, root), fixed=fixed, preset=base.preset, **search)
