"""`stillhouse evaluate MODEL --suite …`: measure a model on published benchmarks, without an experiment."""

import os
from argparse import Namespace
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stillhouse.cli.against import compared_with, models_of, results_against, show_against
from stillhouse.cli.arguments import FLAGS
from stillhouse.cli.documents_by import DocumentsByTeacher, check_searches, measured_on
from stillhouse.cli.parsed_values import asked
from stillhouse.cli.run import on_ray, write_results
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say, show
from stillhouse.core.errors import BadInput, require
from stillhouse.evaluation.asymmetric_search import require_one_dimension
from stillhouse.evaluation.benchmark import Benchmark, Options, Suite, titles_of
from stillhouse.evaluation.benchmarks import suite_flags
from stillhouse.evaluation.chosen_suites import HUB, from_hub, suites_named
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.items import Figures, Measured
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.indexes import check_index
from stillhouse.reports.layout import table_lines
from stillhouse.sweeps.document_teacher import documents_source, other_model
from stillhouse.sweeps.session import device_of
from stillhouse.sweeps.test_log import record_test_use, tag_tested_runs
from stillhouse.training.models import Source, find_model, stages_among

OF_SUITES = ("data_root", "seed")
"""Flags of an experiment's fields that suites read too: the published files and the seed of ``--against``."""


def evaluate_suites(options: Namespace) -> None:
    """Measure on published benchmarks: no corpus is read and no teacher runs."""
    check_flags(options)
    # The model runs in this process, whatever cluster searches.
    options.device = device_of(asked(options))
    options.local = options.search_shards == 1
    with on_ray(options) as (workspace, device):
        write_results(options, run_suites(options, workspace, device))


def run_suites(options: Namespace, workspace: Workspace, device: str) -> dict[str, Any]:
    """Prepare every suite, open the model, measure it, and print one table per suite.

    Returns:
        Figures by suite and test set; under ``about`` the model and its identity, the split, how often the
        test sets had been opened, the notes, and by suite and set the split, the hash of the data and the
        number of items; with ``--against`` also the comparison, under ``against``.

    Raises:
        BadInput: An unknown suite, missing or malformed files, or no such model.
    """
    prepared = prepare_suites(options, workspace)
    teacher = _teacher(options, prepared, workspace)
    models = {name: open_checked(name, options, workspace, device) for name in models_of(options)}
    documents = None if teacher is None else DocumentsByTeacher.opened(teacher, workspace, device)
    model, other = models[options.model], models.get(options.against)
    found: dict[str, Any] = {}
    notes, before, sets = {}, {}, {}
    compared = {}
    if documents is not None:
        require_one_dimension(model, documents.teacher)
    if model.title:
        show(f"model: {model.title}, identity {_identity(model)[:16]}")
    for name, benchmark in prepared.items():
        if benchmark.opens:
            measured = " against ".join(models) or str(options.from_run)
            before[name] = record_test_use(workspace, benchmark.opens, measured)
            noted = sum(tag_tested_runs(workspace, benchmark.opens, each) for each in models if each)
            say(f"{name}: test sets opened (before: {before[name]} times{_runs(noted)})")
        # The model comes last, so that what `--run` and `--figures` write is its own.
        by_teacher = None if documents is None else documents.measure(name, benchmark, model)
        theirs = None if other is None else _others(name, benchmark, other, documents, by_teacher)
        ours = _measured(name, benchmark, model, among_others=len(models) > 1 or documents is not None)
        found[name] = ours.figures
        notes[name] = [*benchmark.notes, *_undefined(ours.figures)]
        sets[name] = benchmark.about(ours)
        _show(name, benchmark, ours.figures, sets[name])
        for note in notes[name]:
            say(f"note: {note}")
        if theirs is not None:
            assert other is not None
            compared[name] = compared_with(ours, theirs, options)
            shown = {titles_of(sets[name]).get(each, each): one for each, one in compared[name].items()}
            show_against(name, shown, options, benchmark.digits, (model.title, other.title))
        if documents is not None and by_teacher is not None:
            documents.show(name, benchmark, model, by_teacher, ours)
    if documents is not None:
        found |= {"documents_by": documents.finish(keep=bool(options.keep_vectors))}
    split = "test" if options.final else options.split or "dev"
    found["about"] = {
        **{"model": model.title, "identity": _identity(model), "split": split},
        **{"opened_before": before, "notes": notes, "sets": sets},
    }
    if other is None:
        return found
    against = results_against(options, compared, (model.title, other.title))
    return found | {"against": against | {"identity": _identity(other)}}


def open_checked(name: str, options: Namespace, workspace: Workspace, device: str) -> FiniteEncoder:
    """Open a model by its name; there is none if a run is measured."""
    if not name:
        return FiniteEncoder(None)
    if name == options.model:
        found = find_model(name, workspace, pooling=options.pooling, normalize=options.normalize)
    else:
        found = other_model(name, options.model, workspace)
    identity = f"{found.identity()} {device}"
    return FiniteEncoder(
        found.open(device), identity, found.title, found.megabytes(), reopen=lambda: found.open(device)
    )


def _identity(model: FiniteEncoder) -> str:
    """Hash of all that determines a vector but the device."""
    return model.identity.rpartition(" ")[0]


def _teacher(options: Namespace, prepared: Mapping[str, Benchmark], workspace: Workspace) -> Source | None:
    """Find the model of `--documents-by`, before any model is loaded; None without the flag."""
    if options.documents_by is None:
        return None
    check_searches(prepared)
    return documents_source(options.documents_by, options.model, workspace)


def _runs(noted: int) -> str:
    return f"; noted in {noted} run{'s' if noted > 1 else ''} of MLflow" if noted else ""


def _measured(name: str, benchmark: Benchmark, model: FiniteEncoder, *, among_others: bool) -> Measured:
    if among_others:
        say(f"{name}: measuring {model.title}")
    return measured_on(benchmark, model)


def _others(
    name: str,
    benchmark: Benchmark,
    other: FiniteEncoder,
    documents: DocumentsByTeacher | None,
    by_teacher: tuple[Measured, Measured] | None,
) -> Measured:
    """The figures of the model of `--against`; a teacher that has been measured is not measured again."""
    if documents is not None and by_teacher is not None and other.identity == documents.teacher.identity:
        return by_teacher[0]
    return _measured(name, benchmark, other, among_others=True)


def prepare_suites(options: Namespace, workspace: Workspace) -> dict[str, Benchmark]:
    """Read and check the files of the suites that ``--suite`` names."""
    suites: Mapping[str, Suite] = suites_named(options.suite)
    root = options.data_root or os.environ.get("STILLHOUSE_DATA", "")
    if root == HUB:
        replaced = [name for name, suite in suites.items() if suite.MTEB_TASKS]
        ours = [flag for flag in suite_flags() if flag.suite in replaced]
        given = [flag.option for flag in ours if getattr(options, flag.name) != flag.default]
        require(not given, f"flags of suites must go with files, not with --data-root {HUB}", flags=given)
        suites = from_hub(suites)
    elif any(suite.NEEDS_DATA for suite in suites.values()):
        require(
            bool(root) and Path(root).is_dir(),
            "--data-root must be the folder with the published files",
            data_root=root,
            remedy=f"Give --data-root DIR, or set STILLHOUSE_DATA; {HUB} takes mteb's data from the hub.",
        )
    how = Options(
        final=options.final,
        workspace=workspace,
        flags={flag.name: getattr(options, flag.name) for flag in suite_flags()},
        stages=stages_among(models_of(options), workspace),
    )
    return {name: suite.prepare(root, how) for name, suite in suites.items()}


def refuse_suite_flags(options: Namespace, suites: Collection[str] = ()) -> None:
    """Refuse flags of suites that are not run."""
    for flag in suite_flags():
        given = getattr(options, flag.name)
        require(
            flag.suite in suites or given == flag.default,
            f"{flag.option} goes with --suite {flag.suite}",
            **{flag.name: str(given)},
        )


def check_flags(options: Namespace) -> None:
    """Refuse flags that do not go together, before Ray is started or a file is read."""
    suites = suites_named(options.suite)
    _refuse_experiment(options)
    refuse_suite_flags(options, suites)
    require(options.search_shards >= 1, "search_shards >= 1", search_shards=options.search_shards)
    for text in options.index:
        check_index(parse_index(text))
    if options.from_run is None:
        if not options.model:
            raise BadInput("`evaluate` needs a model: give a folder or a name, or --from-run FILE.")
        return
    for flag in suite_flags():
        same = flag.suite != "retrieval" or flag.name in ("from_run", "only", "split")
        rule = f"{flag.option} and --from-run are not given together"
        require(same or getattr(options, flag.name) == flag.default, rule)
    require(options.documents_by is None, "--documents-by and --from-run are not given together")
    headless = not options.pooling and options.normalize is None
    require(headless, "--pooling and --normalize go with a model, not with --from-run")
    rule = "--device and --from-run are not given together"
    require(options.device in (None, "auto"), rule, device=options.device)
    alone = not options.model and not options.against and list(suites) == ["retrieval"]
    rule = "--from-run goes without a model, with --suite retrieval alone"
    require(alone, rule, model=options.model, suite=options.suite)


def _refuse_experiment(options: Namespace) -> None:
    """Refuse what describes an experiment: suites read none, and it would be ignored."""
    described = [name for name in FLAGS if name not in OF_SUITES and getattr(options, name) is not None]
    described += ["set"] * bool(options.set) + ["refresh"] * bool(options.refresh)
    if described:
        flag = f"--{described[0].replace('_', '-')}"
        raise BadInput(
            f"{flag} and --suite are not given together: {flag} belongs to an experiment, "
            "and a suite measures the model as it is. Leave it out."
        )


def _show(name: str, benchmark: Benchmark, figures: Figures, about: Mapping[str, Any]) -> None:
    """Print the figures with what they are computed from: one column per set, or one line."""
    kinds = list(dict.fromkeys(kind for each in figures.values() for kind in each))
    titles, first = ({}, 0) if benchmark.across else (titles_of(about), 1)
    table = [[name, *kinds, *_ABOUT[first:]]]
    for found, each in figures.items():
        cells = [_written(each.get(kind), benchmark.digits) for kind in kinds]
        table.append([titles.get(found, found), *cells, *_said(about.get(found))[first:]])
    if benchmark.across:
        table = [list(row) for row in zip(*table, strict=True)]
    show()
    for text in table_lines(table[0], table[1:]):
        show(text)


_ABOUT = ("split", "items", "data")


def _said(about: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """The split, the number of items and the start of the hash of a set's data, as a table shows them."""
    if about is None:
        return "", "", ""
    least, most = (choose(about["items"].values(), default=0) for choose in (min, max))
    items = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return about["split"], items if most else "", about["data"][:8]


def _undefined(figures: Figures) -> list[str]:
    """Note the figures that are not numbers, such as a correlation with cosines that are all equal."""
    found = [
        f"{kind} of {name}"
        for name, each in figures.items()
        for kind, value in each.items()
        if value != value
    ]
    return [f"not defined for these vectors, null in --json: {', '.join(found)}"] if found else []


def _written(value: float | None, digits: int) -> str:
    if value is None:
        return ""
    whole = abs(value) >= 1000 and value == int(value)
    return f"{value:,.0f}" if whole else f"{value:.{digits}f}"
