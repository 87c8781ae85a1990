"""Measuring models on an experiment's own dev or test suite: what `stillhouse evaluate` and its call do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import MANIFEST, Workspace, read_manifest
from stillhouse.core.console import doing, show
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import canonical
from stillhouse.core.notes import publish_notes
from stillhouse.core.types import Encoder, Scorer
from stillhouse.evaluation.asymmetric_search import Beside, require_one_dimension
from stillhouse.evaluation.items import FiguresAndItems
from stillhouse.evaluation.pool import calibrate
from stillhouse.evaluation.suites import figure_facts, measure_suite, run_suite
from stillhouse.evaluation.trained_claims import refuse_trained_claims
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.collection import SearchCollection, SearchData
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.preparation import Preparation, documents_of
from stillhouse.experiments.task_rows import TaskReader
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.sweeps.document_teacher import beside_teacher, documents_source, other_model, taught_by
from stillhouse.sweeps.test_log import record_test_use, tag_tested_runs
from stillhouse.training.models import Source, encoder_in, find_model, stages_among
from stillhouse.values.data import Store
from stillhouse.values.setting import TaskData
from stillhouse.values.stage import DevSuite, TestSuite


@dataclass(frozen=True)
class TeachersDocuments:
    """Figures that were measured among the documents of a teacher.

    Attributes:
        source: The teacher.
        figures: The teacher's figure, the model's own and the asymmetric one, by the name of the second.
        embedded: Whether the documents of a table were embedded now, by its label; otherwise they were found.
    """

    source: Source
    figures: Mapping[str, Beside]
    embedded: Mapping[str, bool]


@dataclass(frozen=True)
class Measurement:
    """Models that were measured on one split of an experiment.

    Attributes:
        split: ``dev`` or ``test``.
        sources: The models, in the order in which they were named.
        suite: The suite's figures of each, with their items.
        figures: All figures of the first model.
        documents_by: What was measured among a teacher's documents; None without any.
        facts: What is known of the data, counts among it.
        about: What the suite's figures are computed from; see `figure_facts`.
        calibration: The first model's figures on the whole collection and on its pool, where there is one.
    """

    split: str
    sources: tuple[Source, ...]
    suite: tuple[FiguresAndItems, ...]
    figures: Mapping[str, float]
    facts: Mapping[str, Any]
    about: Mapping[str, Mapping[str, Any]]
    documents_by: TeachersDocuments | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)


def measure_models(
    experiment: Experiment,
    models: Sequence[str],
    workspace: Workspace,
    embedding: Embedding,
    *,
    final: bool = False,
    documents_by: str | None = None,
    head: tuple[str, bool | None] = ("", None),
    refresh: bool = False,
) -> Measurement:
    """Make what an experiment's evaluators of one split read, and measure models.

    Args:
        experiment: The data.
        models: Their names; see `training.models`.
        workspace: Where stages are found, and where vectors and openings of the test split are kept.
        embedding: Where the teacher runs; the models run on the same device.
        final: Whether the test split is opened; every opening is recorded in the workspace.
        documents_by: Name of the teacher whose documents the first model's queries search too, or ``teacher``
            for a stage's own; None measures no asymmetric search.
        head: Pooling and norm of a published model that comes first; see `find_model`.
        refresh: Whether corpora are read again.

    Raises:
        BadInput: There is no such model, the data cannot be read, or the models cannot be measured on it.
    """
    split, teacher = "test" if final else "dev", None
    if documents_by is not None:
        teacher = documents_source(documents_by, models[0], workspace)
        experiment = taught_by(experiment, teacher)
    first, *others = models
    sources = (
        source_of(first, experiment, workspace, head),
        *(_other(name, first, experiment, workspace) for name in others),
    )
    stages = {} if final else stages_among(models, workspace)
    stages = {name: folder for name, folder in stages.items() if (folder / MANIFEST).exists()}
    encoders = [
        encoder_in(stages[source.name], embedding.device, as_trained=True)
        if source.name in stages
        else source.open(embedding.device)
        for source in sources
    ]
    by_teacher = None if teacher is None else teacher.open(embedding.device)
    if by_teacher is not None:
        require_one_dimension(encoders[0], by_teacher)
    known = set(workspace.root.glob(f"{Store.kind}/*/{MANIFEST}"))
    alone = _task_alone(experiment)
    data = Preparation(experiment, workspace, embedding, refresh, {alone.key} if alone else None)
    suite: DevSuite | TestSuite = data.test if final else data.dev
    if alone is not None and not final:
        suite = _task_suite(data.once(TaskReader(alone).read)[0], encoders)
    if experiment.get(Claims) is not None:
        refuse_trained_claims(stages_among(models, workspace), suite, split, workspace)
    data.make(suite)
    suite = data.settled(suite)
    publish_notes(workspace)
    if isinstance(suite, TestSuite):
        record_test_use(workspace, suite.opens, " against ".join(models))
        for name in models:
            tag_tested_runs(workspace, suite.opens, name)
    with doing(f"measuring {' and '.join(models)}"):
        kept = _figures_of_training(stages.get(models[0]), suite) if len(models) == 1 else {}
        measured = tuple(
            (kept, {}) if kept else measure_suite(suite, encoder, workspace) for encoder in encoders
        )
    figures, calibration = dict(measured[0][0]), {}
    beside = None
    if teacher is not None and by_teacher is not None:
        beside = TeachersDocuments(
            teacher,
            beside_teacher(suite, by_teacher, figures, workspace),
            {store.label: workspace.path(store) / MANIFEST not in known for store in documents_of(suite)},
        )
    if not final:
        task = experiment.get(LabelledTask)
        if alone is None and task is not None:
            figures |= _task_figures(data.once(TaskReader(task).read)[0], encoders[0], workspace)
        calibration = calibrated(data.settled(data.get(SearchCollection)), encoders[0], sources[0], workspace)
    about = figure_facts(suite, workspace)
    return Measurement(split, sources, measured, figures, data.facts_of(None), about, beside, calibration)


def _figures_of_training(stage: Path | None, suite: DevSuite | TestSuite) -> dict[str, float]:
    """The figures that a stage's training printed, if it was measured on this suite; otherwise none."""
    manifest = {} if stage is None else read_manifest(stage)
    same = bool(manifest) and manifest["plan"]["with"].get("dev") == canonical(suite)
    return dict(manifest["metrics"]) if same else {}


def source_of(
    name: str, experiment: Experiment, workspace: Workspace, head: tuple[str, bool | None] = ("", None)
) -> Source:
    """Find a model by its name; the experiment's teacher has the head and the prompts of the experiment."""
    source = find_model(name, workspace, pooling=head[0], normalize=head[1])
    named = name == experiment.teacher.name and experiment.teacher.is_model
    if source.model is None or not named or any(source.stated):
        return source
    return replace(source, model=experiment.teacher.finder.published())


def _other(name: str, model: str, experiment: Experiment, workspace: Workspace) -> Source:
    """Find the model of ``--against``: a stage's own teacher, else as `source_of` does."""
    found = other_model(name, model, workspace)
    return found if any(found.stated) else source_of(name, experiment, workspace)


def _task_alone(experiment: Experiment) -> LabelledTask | None:
    """The task, where one is named without any text; then nothing else is read to measure models."""
    task: LabelledTask | None = experiment.get(LabelledTask)
    return None if any(kind.is_source for kind in experiment.data) else task


def _task_suite(task: TaskData, models: Sequence[Any]) -> DevSuite:
    """The dev suite of a task: scores if every model gives them, plain vectors if every model encodes."""
    suites = [task.dev] if all(isinstance(model, Scorer) for model in models) else []
    if task.untuned is not None and all(isinstance(model, Encoder) for model in models):
        suites.append(task.untuned)
    if not suites:
        raise BadInput(
            "a task whose labels are not those of pairs needs models with a classifier. Give a stage that "
            "was trained on it, or --suite glue, which trains a classifier on the vectors."
        )
    return DevSuite(tuple(part for suite in suites for part in suite.evaluators), select=suites[0].select)


def _task_figures(task: TaskData, encoder: Any, workspace: Workspace) -> dict[str, float]:
    """Measure a model on a task's own dev suites: its scores, where it gives any, and its plain vectors."""
    figures: dict[str, float] = {}
    scored = [task.dev] if isinstance(encoder, Scorer) else []
    for suite in [*scored, *([task.untuned] if task.untuned else [])]:
        figures |= run_suite(suite, encoder, workspace)
    return figures


def calibrated(
    search: SearchData | None, encoder: Any, source: Source, workspace: Workspace
) -> dict[str, dict[str, float]]:
    """Measure a model on the whole collection and on the pool; the figures are printed, and kept with it."""
    if search is None or search.pool is None:
        return {}
    found = calibrate(workspace, search.pool, encoder, source.identity(), prefix=search.name)
    show("  calibration of the dev pool:")
    for figure, each in found.items():
        show(f"  {figure:<36} {each['full']:.4f} whole, {each['pool']:.4f} pool, ratio {each['ratio']:.3f}")
    return found
