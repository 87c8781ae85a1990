"""`stillhouse evaluate MODEL --suite …`: the published benchmarks, without an experiment of ours."""

import os
from argparse import Namespace
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stillhouse.artifacts import Workspace
from stillhouse.console import say
from stillhouse.errors import require
from stillhouse.evaluation.benchmarks.common import Benchmark, Figures, Options, Suite
from stillhouse.evaluation.benchmarks.table import HUB, NEED_NO_DATA, from_hub, suites_named
from stillhouse.evaluation.checked import Checked
from stillhouse.evaluation.items import Measured

FLAGS = {"run": "retrieval", "candidates": "fever", "fast": "transfer", "onnx": "cost", "figures": "geometry"}
"""Flags that are of one suite alone."""


def run_suites(options: Namespace, workspace: Workspace, device: str) -> dict[str, Any]:
    """Prepare every suite, open the model, measure it, and show a table a suite.

    Args:
        options: ``model``, ``suite``, ``data_root``, ``final``, and those of `FLAGS`; ``against``,
            ``resamples``, ``seed``.
        workspace: Where stages are looked for, and openings of test sets recorded.
        device: Where the model encodes.

    Returns:
        Suite to set to figure; with another model ``against`` beside, the comparison.

    Raises:
        BadInput: An unknown suite, missing or malformed files, or no such model.
    """
    from stillhouse.cli_against import beside, models_of, show_against, told_against
    from stillhouse.sweeps.openings import record_opening, tell_runs
    from stillhouse.training.run import open_model

    prepared = prepare_suites(options)
    model = open_model(options.model, workspace, device)
    other = open_model(options.against, workspace, device) if options.against else None
    found: dict[str, Any] = {}
    compared = {}
    for name, benchmark in prepared.items():
        if benchmark.opens:
            before = record_opening(workspace, benchmark.opens, " against ".join(models_of(options)))
            told = sum(tell_runs(workspace, benchmark.opens, each) for each in models_of(options))
            say(f"{name}: test sets opened (before: {before} times{_runs(told)})")
        # The model comes last, so that what `--run` and `--figures` write is its own.
        theirs = None if other is None else _measured(benchmark, other)
        mine = _measured(benchmark, model)
        found[name] = mine.figures
        _show(name, benchmark, mine.figures)
        if theirs is not None:
            compared[name] = beside(mine, theirs, options)
            show_against(name, compared[name], options, benchmark.digits)
    return found | ({"against": told_against(options, compared)} if other is not None else {})


def _runs(told: int) -> str:
    return f"; noted in {told} run{'s' if told > 1 else ''} of MLflow" if told else ""


def _measured(benchmark: Benchmark, model: Any) -> Measured:
    checked = Checked(model)
    if benchmark.itemised is not None:
        return benchmark.itemised(checked)
    return Measured(benchmark.measure(checked), {})


def prepare_suites(options: Namespace) -> dict[str, Benchmark]:
    """The suites that ``--suite`` names, their files read and checked."""
    wanted: Mapping[str, Suite] = suites_named(options.suite)
    refuse_suite_flags(options, wanted)
    root = options.data_root or os.environ.get("STILLHOUSE_DATA", "")
    if root == HUB:
        wanted = from_hub(wanted)
    elif any(name not in NEED_NO_DATA for name in wanted):
        require(
            bool(root) and Path(root).is_dir(),
            "--data-root is the folder with the published files",
            data_root=root,
            remedy=f"Give --data-root DIR, or set STILLHOUSE_DATA; {HUB} takes mteb's data from the hub.",
        )
    how = Options(
        final=options.final,
        run=options.run,
        candidates=10 if options.candidates is None else options.candidates,
        fast=options.fast,
        onnx=options.onnx,
        figures=options.figures,
    )
    return {name: suite(root, how) for name, suite in wanted.items()}


def refuse_suite_flags(options: Namespace, wanted: Collection[str] = ()) -> None:
    """Refuse flags that say how a suite is run where that suite is not among those that are wanted."""
    for flag, suite in FLAGS.items():
        given = getattr(options, flag)
        fits = suite in wanted or given is None or given is False
        require(fits, f"--{flag} goes with --suite {suite}", **{flag: str(given)})


def _show(name: str, benchmark: Benchmark, figures: Figures) -> None:
    from stillhouse.sweeps.table import aligned

    kinds = list(dict.fromkeys(kind for each in figures.values() for kind in each))
    lines = kinds if benchmark.across else list(figures)
    columns = list(figures) if benchmark.across else kinds

    def cell(line: str, column: str) -> str:
        found, kind = (column, line) if benchmark.across else (line, column)
        return _written(figures[found].get(kind), benchmark.digits)

    cells = [[line, *(cell(line, column) for column in columns)] for line in lines]
    say()
    for text in aligned([name, *columns], cells, left={0}):
        say(text)
    for note in (*benchmark.notes, *_undefined(figures)):
        say(f"note: {note}")


def _undefined(figures: Figures) -> list[str]:
    """The note on figures that are no number, such as a correlation with cosines that are all equal."""
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
