"""What each command does, from parsed arguments to an exit code."""

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from stillhouse.cli.dashboard import dashboard as dashboard
from stillhouse.cli.options import (
    device_of,
    embedding_of,
    experiment_of,
    fixed_of,
    fractions_of,
    need_of,
    probe_all,
    root_of,
    space_of,
    trials_of,
)
from stillhouse.core.artifacts import Workspace, locked, without_nan, write_json
from stillhouse.core.console import diverted_chatter, say
from stillhouse.core.errors import require
from stillhouse.core.signals import signals_kept
from stillhouse.experiments.preparation import Prepared, prepare


def sweep(options: Namespace) -> int:
    """`stillhouse sweep METHOD`."""
    from stillhouse.methods import load_method
    from stillhouse.search.options import SweepOptions
    from stillhouse.sweeps.sweep import sweep as run_sweep
    from stillhouse.tracking.mlflow_tracker import tracking_uri, ui_command

    method = load_method(options.method)
    space = space_of(options, method)
    wanted = experiment_of(options, dict(space.experiment))
    probe_all(options, method, space.probes(), wanted)
    root = root_of(options)
    device = device_of(options)
    report = run_sweep(
        SweepOptions(
            name=options.name or options.method,
            method=options.method,
            preset=options.preset,
            space=space,
            experiment=wanted,
            root=root,
            trials=trials_of(options, space),
            sampler=options.sampler,
            objectives=tuple(options.objectives.split(",")),
            scheduler=options.scheduler,
            full=options.full,
            at_once=options.concurrency,
            need=need_of(options),
            embedding=embedding_of(options, device, local=False),
            device=device,
            address=options.address,
            register=options.register,
            refresh=options.refresh,
            verbose=options.verbose,
        )
    )
    say(f"the runs in MLflow: make ui, or {ui_command(tracking_uri(root))}")
    _write(options, report)
    return 0 if report["champion"] else 1


def train(options: Namespace) -> int:
    """`stillhouse train METHOD`."""
    from dataclasses import asdict, replace

    from stillhouse.methods import hyper_parameters, load_method
    from stillhouse.sweeps.curve import curve_table, train_at
    from stillhouse.training.walk import Where

    method = load_method(options.method)
    fixed, wanted = fixed_of(options, method), experiment_of(options, {})
    shares = fractions_of(options)
    probe_all(options, method, [fixed], replace(wanted, fraction=min(shares)) if shares else wanted)
    with _on_ray(options) as (workspace, device):
        points = train_at(
            shares or (wanted.fraction,),
            method,
            hyper_parameters(method, fixed, options.preset),
            wanted,
            workspace,
            embedding_of(options, device, local=options.local),
            Where(device=device, threads=max(1, int(options.cpus_per_worker)), workers=options.workers),
            refresh=options.refresh,
        )
    if shares:
        say(curve_table(points))
        _write(options, [asdict(point) for point in points])
        return 0
    (point,) = points
    say(f"trained: {point.folder}")
    _write(options, {"folder": point.folder, "metrics": point.metrics, "seconds": point.seconds})
    return 0


def embed(options: Namespace) -> int:
    """`stillhouse embed`."""
    with _on_ray(options) as (workspace, device):
        prepared = _prepared(options, workspace, device)
    for name, value in prepared.facts.items():
        say(f"  {name}: {value}")
    _write(options, prepared.facts)
    return 0


def mine(options: Namespace) -> int:
    """`stillhouse mine`."""
    from stillhouse.experiments.mined_pairs import check_mine
    from stillhouse.experiments.mined_pairs import mine as run_mine

    wanted = experiment_of(options, {"pairs": 0} if options.labelled else {})
    check_mine(wanted, options.output)
    with _on_ray(options) as (workspace, device):
        embedding = embedding_of(options, device, local=options.local)
        report = run_mine(wanted, workspace, embedding, options.output, refresh=options.refresh)
    say(f"mined: {report['pairs']:,} pairs with {report['negatives']} negatives each: {report['output']}")
    for reason, count in report["left_out"].items():
        say(f"  left out, {reason.replace('_', ' ')}: {count:,}")
    positive, negative = report["mean_positive_cosine"], report["mean_negative_cosine"]
    say(f"  mean cosine of positives {positive:.4f}, of negatives {negative:.4f}; {report['seconds']:.1f} s")
    _write(options, report)
    return 0


def evaluate(options: Namespace) -> int:
    """`stillhouse evaluate MODEL`."""
    from stillhouse.cli.against import check_against, compare_suites, models_of, told_against
    from stillhouse.cli.suites import refuse_suite_flags
    from stillhouse.evaluation.suites import measure_suite, run_suite
    from stillhouse.experiments.dev_pool import calibrated
    from stillhouse.sweeps.test_log import record_opening, tell_runs
    from stillhouse.training.walk import open_model

    options.local = True
    check_against(options)
    if options.suite is not None:
        return _evaluate_suites(options)
    require(bool(options.model), "a model is given", remedy="Give MODEL, or --suite with --from-run.")
    refuse_suite_flags(options)
    split = "test" if options.final else "dev"
    report: dict[str, Any] = {"model": options.model, "split": split}
    with _on_ray(options) as (workspace, device):
        encoder, *others = [open_model(name, workspace, device) for name in models_of(options)]
        prepared = _prepared(options, workspace, device)
        suite = prepared.test if options.final else prepared.setting.dev
        if options.final:
            record_opening(workspace, suite.fingerprint, " against ".join(models_of(options)))
            for name in models_of(options):
                tell_runs(workspace, suite.fingerprint, name)
        mine = measure_suite(suite, encoder, workspace)
        figures = dict(mine[0])
        theirs = [measure_suite(suite, other, workspace) for other in others]
        task = prepared.setting.task
        if task and not options.final:
            scored = [task.dev] if hasattr(encoder, "score") else []
            for suite in [*scored, *([task.untuned] if task.untuned else [])]:
                figures |= run_suite(suite, encoder, workspace)
        calibration = {} if options.final else calibrated(prepared.pool, encoder, options.model, workspace)
    for name, value in figures.items():
        say(f"  {name:<36} {value:.4f}")
    if calibration:
        report["calibration"] = calibration
    for other in theirs:
        report["against"] = told_against(options, {split: compare_suites(split, mine, other, options)})
    _write(options, {**report, "metrics": figures})
    return 0


def _evaluate_suites(options: Namespace) -> int:
    """Published benchmarks: no corpus is read and no teacher run."""
    from stillhouse.cli.suites import check_flags, run_suites

    check_flags(options)
    # The model runs in this process, whatever cluster searches.
    options.device = device_of(options)
    options.local = options.search_shards == 1
    with _on_ray(options) as (workspace, device):
        _write(options, run_suites(options, workspace, device))
    return 0


def compare(options: Namespace) -> int:
    """`stillhouse compare RUN… | --experiment NAME`."""
    from stillhouse.reports.comparison import Comparison
    from stillhouse.reports.comparison import compare as run_compare
    from stillhouse.tracking.mlflow_tracker import tracking_uri

    wanted = Comparison(
        runs=tuple(options.runs),
        experiment=options.experiment,
        output=options.output,
        formats=tuple(options.format.split(",")),
        quality=options.quality,
    )
    root = root_of(options)
    with _quietly(options):
        report = run_compare(wanted, root, tracking_uri(root))
    say(f"compared: {report['lines']} lines in {report['folder']}: {', '.join(report['files'])}")
    _write(options, report)
    return 0


def export(options: Namespace) -> int:
    """`stillhouse export STAGE FOLDER`."""
    from stillhouse.students.export.formats import FORMATS
    from stillhouse.sweeps.export import export_stage, formats_of

    known = (*FORMATS, "list")
    require(options.format in known, f"format in {known}", format=options.format)
    if options.format == "list":
        with _quietly(options):
            formats = formats_of(options.stage)
        for form, reason in formats.items():
            say(f"  {form:<22} {f'no: {reason}' if reason else 'yes'}")
        _write(options, {"formats": formats})
        return 0
    require(options.folder is not None, "an export is given a folder", remedy="Say where to write.")
    with _quietly(options):
        cosine = export_stage(options.stage, options.folder, form=options.format)
    megabytes = sum(file.stat().st_size for file in options.folder.rglob("*") if file.is_file()) / 1e6
    say(
        f"exported: {options.folder} ({options.format}, {megabytes:.1f} MB, "
        f"lowest cosine to the trained student {cosine:.7f})"
    )
    told = {"format": options.format, "folder": str(options.folder), "parity": cosine}
    _write(options, {**told, "megabytes": megabytes})
    return 0


def presets(options: Namespace) -> int:
    """`stillhouse presets METHOD`."""
    from dataclasses import asdict

    from stillhouse.methods import load_method
    from stillhouse.methods import presets as presets_of
    from stillhouse.reports.tables import aligned

    method = load_method(options.method)
    values = presets_of(method)
    cells = [
        ["*" if v.differs else "", v.name, str(v.paper), v.paper_source, str(v.repo), v.repo_source]
        for v in values
    ]
    say(f"{method.PAPER}\n")
    for line in aligned(["", "hyper-parameter", "paper", "from", "repo", "from"], cells, left={0, 1, 3, 5}):
        say(line.rstrip())
    say("\n* the authors' code differs from the text")
    _write(options, [{**asdict(value), "differs": value.differs} for value in values])
    return 0


def store(options: Namespace) -> int:
    """`stillhouse store {ls,verify,gc}`."""
    from stillhouse.cli import store_actions as stores

    workspace = Workspace(root_of(options))
    if options.action == "gc":
        found = stores.collect(workspace, really=options.yes)
    else:
        found = stores.verify(workspace) if options.action == "verify" else stores.show(workspace)
    _write(options, found)
    return int(any(entry.get("problems") for entry in found))


def _prepared(options: Namespace, workspace: Workspace, device: str) -> Prepared:
    embedding = embedding_of(options, device, local=options.local)
    return prepare(experiment_of(options, {}), workspace, embedding, refresh=options.refresh)


def _write(options: Namespace, content: Any) -> None:
    if options.json:
        write_json(options.json, without_nan(content))


@contextlib.contextmanager
def _on_ray(options: Namespace) -> Iterator[tuple[Workspace, str]]:
    """The workspace, locked, and the device; chatter is diverted, and Ray started unless `--local`."""
    from stillhouse.cluster.connection import connect, disconnect
    from stillhouse.cluster.resources import cluster_device

    root, device = root_of(options), device_of(options)
    held = f"{root} must have one writer, but another run is going on there. Wait for it, or give --root."
    workspace = Workspace(root)
    workspace.claim()
    with locked(root / ".lock", wait=False, held=held), _quietly(options):
        try:
            if not options.local:
                with signals_kept():
                    connect(options.address, nested=options.workers > 1, verbose=options.verbose)
            yield workspace, cluster_device(device)
        finally:
            if not options.local:
                disconnect()


def _quietly(options: Namespace) -> contextlib.AbstractContextManager[None]:
    return diverted_chatter(root_of(options) / "logs", verbose=options.verbose)
