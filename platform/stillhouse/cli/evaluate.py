"""`stillhouse evaluate MODEL`: measure a model on dev, on locked test data, or on published benchmarks."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from typing import Any

from stillhouse.cli.arguments import add_experiment, add_where, new_command
from stillhouse.core.errors import BadInput
from stillhouse.evaluation.benchmarks import known_suites, suite_flags


def add(commands: "_SubParsersAction[ArgumentParser]") -> ArgumentParser:
    """Add the command."""
    command = new_command(
        commands,
        "evaluate",
        "measure a model on the dev suite, on the locked test suite, or on published benchmarks",
        "stillhouse evaluate all-MiniLM-L6-v2\n"
        "  stillhouse evaluate runs/sweeps/ibkd/export --final\n"
        "  stillhouse evaluate all-MiniLM-L6-v2 --suite sts,geometry --data-root DATA --json figures.json\n"
        "  stillhouse evaluate all-MiniLM-L6-v2 --suite retrieval --data-root DATA --run run.txt\n"
        "  stillhouse evaluate --suite retrieval --data-root DATA --from-run run.txt\n"
        "  stillhouse evaluate all-MiniLM-L6-v2 --suite retrieval --data-root DATA \\\n"
        "      --search-shards 4 --index hnsw --index ivfpq:nprobe=32\n"
        "  stillhouse evaluate my-student --suite sts --data-root DATA --against all-MiniLM-L6-v2",
    )
    command.add_argument(
        "model",
        nargs="?",
        default="",
        help="a stage's folder, an exported folder, or a model's name or path; none with --from-run",
    )
    command.add_argument(
        "--suite",
        metavar="NAME[,NAME]",
        help="published benchmarks from --data-root, without an experiment: "
        f"{', '.join(known_suites())}, mteb:TASK",
    )
    command.add_argument(
        "--against", metavar="OTHER", help="another model on the same items: intervals, p, and the share kept"
    )
    command.add_argument(
        "--resamples",
        type=int,
        metavar="N",
        help="--against: samples of the items; default 10000, for rank correlations 2000",
    )
    command.add_argument("--final", action="store_true", help="open the test sets; recorded in the workspace")
    group = command.add_argument_group("flags of suites")
    for flag in suite_flags():
        text = f"{flag.suite}: {flag.arguments['help']}"
        group.add_argument(flag.option, dest=flag.name, **{**flag.arguments, "help": text})
    add_experiment(command)
    add_where(command)
    return command


def run(options: Namespace) -> int:
    """Run the command."""
    from stillhouse.cli.against import check_against

    options.local = True
    check_against(options)
    if options.suite is not None:
        return _evaluate_suites(options)
    return _evaluate_experiment(options)


def _evaluate_experiment(options: Namespace) -> int:
    from stillhouse.cli.against import compare_suites, models_of, results_against
    from stillhouse.cli.options import embedding_of, experiment_from
    from stillhouse.cli.run import on_ray, write_results
    from stillhouse.cli.suites import refuse_suite_flags
    from stillhouse.core.console import say
    from stillhouse.evaluation.suites import measure_suite
    from stillhouse.experiments.kinds.collection import SearchCollection, calibrated
    from stillhouse.experiments.preparation import prepare
    from stillhouse.sweeps.test_log import record_test_use, tag_tested_runs
    from stillhouse.training.walk import open_model

    if not options.model:
        raise BadInput(
            "`evaluate` needs a model: give a stage's folder, an exported folder or a name, "
            "or --suite with --from-run."
        )
    refuse_suite_flags(options)
    split = "test" if options.final else "dev"
    report: dict[str, Any] = {"model": options.model, "split": split}
    with on_ray(options) as (workspace, device):
        encoder, *others = [open_model(name, workspace, device) for name in models_of(options)]
        experiment = experiment_from(options, base=options.base)
        embedding = embedding_of(options, device, local=options.local)
        prepared = prepare(experiment, workspace, embedding, refresh=options.refresh, training=False)
        suite = prepared.test if options.final else prepared.setting.dev
        if options.final:
            record_test_use(workspace, suite.fingerprint, " against ".join(models_of(options)))
            for name in models_of(options):
                tag_tested_runs(workspace, suite.fingerprint, name)
        mine = measure_suite(suite, encoder, workspace)
        figures = dict(mine[0])
        theirs = [measure_suite(suite, other, workspace) for other in others]
        calibration: dict[str, Any] = {}
        if not options.final:
            figures |= _task_figures(prepared.setting, encoder, workspace)
            search = prepared.setting.get(SearchCollection)
            calibration = calibrated(search.pool if search else None, encoder, options.model, workspace)
    for name, value in figures.items():
        say(f"  {name:<36} {value:.4f}")
    if calibration:
        report["calibration"] = calibration
    for other in theirs:
        report["against"] = results_against(options, {split: compare_suites(split, mine, other, options)})
    write_results(options, {**report, "metrics": figures})
    return 0


def _task_figures(setting: Any, encoder: Any, workspace: Any) -> dict[str, float]:
    """Measure a model on a task's own dev suites: its scores, where it gives any, and its plain vectors."""
    from stillhouse.core.types import Scorer
    from stillhouse.evaluation.suites import run_suite
    from stillhouse.experiments.kinds.labelled_task import LabelledTask

    task = setting.get(LabelledTask)
    figures: dict[str, float] = {}
    if task is not None:
        scored = [task.dev] if isinstance(encoder, Scorer) else []
        for suite in [*scored, *([task.untuned] if task.untuned else [])]:
            figures |= run_suite(suite, encoder, workspace)
    return figures


def _evaluate_suites(options: Namespace) -> int:
    """Measure on published benchmarks: no corpus is read and no teacher runs."""
    from stillhouse.cli.options import device_of
    from stillhouse.cli.run import on_ray, write_results
    from stillhouse.cli.suites import check_flags, run_suites

    check_flags(options)
    # The model runs in this process, whatever cluster searches.
    options.device = device_of(options)
    options.local = options.search_shards == 1
    with on_ray(options) as (workspace, device):
        write_results(options, run_suites(options, workspace, device))
    return 0
