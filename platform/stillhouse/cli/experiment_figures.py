"""`stillhouse evaluate MODEL` without `--suite`: measure a model on an experiment's own dev or test suite."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stillhouse.cli.against import compare_suites, models_of, results_against
from stillhouse.cli.documents_by import beside_teacher, documents_source, report_of, show, taught_by
from stillhouse.cli.options import embedding_of, experiment_from
from stillhouse.cli.run import on_ray, write_results
from stillhouse.cli.suites import refuse_suite_flags, stages_of
from stillhouse.core.artifacts import MANIFEST, Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoder, Scorer
from stillhouse.evaluation.asymmetric import require_one_dimension
from stillhouse.evaluation.suites import measure_suite, run_suite
from stillhouse.evaluation.trained_claims import refuse_trained_claims
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.collection import SearchCollection
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.preparation import documents_of, embed_stores, prepare
from stillhouse.experiments.search_pool import calibrated
from stillhouse.experiments.unread import beside_task
from stillhouse.plan.data import Store
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import DevSuite, TestSuite
from stillhouse.sweeps.test_log import record_test_use, tag_tested_runs
from stillhouse.training.models import Source, find_model


def evaluate_experiment(options: Namespace) -> None:
    """Prepare the experiment's data, measure the model, and print and write the figures."""
    if not options.model:
        raise BadInput(
            "`evaluate` needs a model: give a sweep's or a stage's name or folder, an export in any form, a "
            "model's name, or --suite with --from-run."
        )
    refuse_suite_flags(options)
    split = "test" if options.final else "dev"
    report: dict[str, Any] = {"model": options.model, "split": split}
    with on_ray(options) as (workspace, device):
        experiment = experiment_from(options, base=options.base)
        teacher = None
        if options.documents_by is not None:
            teacher = documents_source(options.documents_by, options.model, workspace)
            experiment = taught_by(experiment, teacher)
        sources = [source_of(name, experiment, workspace) for name in models_of(options)]
        encoder, *others = [source.open(device) for source in sources]
        by_teacher = None if teacher is None else teacher.open(device)
        if by_teacher is not None:
            require_one_dimension(encoder, by_teacher)
        known = set(workspace.root.glob(f"{Store.kind}/*/{MANIFEST}"))
        embedding = embedding_of(options, device, local=options.local)
        alone = beside_task(experiment)
        prepared = prepare(
            experiment, workspace, embedding, refresh=options.refresh, training=False, unread=alone
        )
        suite = prepared.test if options.final else prepared.setting.dev
        if alone is not None and not options.final:
            suite = _task_suite(prepared.setting, [encoder, *others])
        if experiment.get(Claims) is not None:
            refuse_trained_claims(stages_of(options, workspace), suite, split, workspace)
        embed_stores(documents_of(suite), workspace, embedding)
        if isinstance(suite, TestSuite):
            record_test_use(workspace, suite.opens, " against ".join(models_of(options)))
            for name in models_of(options):
                tag_tested_runs(workspace, suite.opens, name)
        mine = measure_suite(suite, encoder, workspace)
        figures = dict(mine[0])
        theirs = [measure_suite(suite, other, workspace) for other in others]
        beside = {} if by_teacher is None else beside_teacher(suite, by_teacher, figures, workspace)
        calibration: dict[str, Any] = {}
        if not options.final:
            if alone is None:
                figures |= _task_figures(prepared.setting, encoder, workspace)
            search = prepared.setting.get(SearchCollection)
            calibration = calibrated(search, encoder, sources[0], workspace)
    say(f"model: {sources[0].title}")
    for name, value in figures.items():
        say(f"  {name:<36} {value:.4f}")
    if teacher is not None:
        show(split, {split: beside}, teacher.title, sources[0].title, digits=4)
        for store in documents_of(suite):
            made = workspace.path(store) / MANIFEST not in known
            say(f"documents of {store.label}: {'embedded once, now' if made else 'found in the workspace'}")
        report["documents_by"] = report_of(teacher, {split: {split: beside}})
    if calibration:
        report["calibration"] = calibration
    for other in theirs:
        titles = (sources[0].title, sources[1].title)
        compared = compare_suites(split, mine, other, options, titles)
        report["against"] = results_against(options, {split: compared}, titles)
    write_results(options, {**report, "metrics": figures})


def source_of(name: str, experiment: Experiment, workspace: Workspace) -> Source:
    """Find a model by its name; the experiment's teacher has the head and the prompts of the experiment."""
    source = find_model(name, workspace)
    if source.model is None or name != experiment.teacher.name or not experiment.teacher.is_model:
        return source
    return replace(source, model=experiment.teacher.published())


def _task_suite(setting: Setting, models: Sequence[Any]) -> DevSuite:
    """The dev suite of a task: of the models' scores, if all of them give any, and of their plain vectors."""
    task = setting[LabelledTask]
    suites = [task.dev] if all(isinstance(model, Scorer) for model in models) else []
    if task.untuned is not None and all(isinstance(model, Encoder) for model in models):
        suites.append(task.untuned)
    if not suites:
        raise BadInput(
            "a task whose labels are not those of pairs needs models with a classifier. Give a stage that "
            "was trained on it, or --suite glue, which trains a classifier on the vectors."
        )
    return DevSuite(tuple(part for suite in suites for part in suite.evaluators), select=suites[0].select)


def _task_figures(setting: Setting, encoder: Any, workspace: Workspace) -> dict[str, float]:
    """Measure a model on a task's own dev suites: its scores, where it gives any, and its plain vectors."""
    task = setting.get(LabelledTask)
    figures: dict[str, float] = {}
    if task is not None:
        scored = [task.dev] if isinstance(encoder, Scorer) else []
        for suite in [*scored, *([task.untuned] if task.untuned else [])]:
            figures |= run_suite(suite, encoder, workspace)
    return figures
