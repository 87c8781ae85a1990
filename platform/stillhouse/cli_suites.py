"""`stillhouse evaluate MODEL --suite …`: the published benchmarks, without an experiment of ours."""

import os
from argparse import Namespace
from pathlib import Path

from stillhouse.artifacts import Workspace
from stillhouse.console import say
from stillhouse.errors import require
from stillhouse.evaluation.benchmarks import NEED_NO_DATA, SUITES, Benchmark, Figures, Options, suites_named
from stillhouse.evaluation.indexes import check_index, parse_index
from stillhouse.evaluation.retrieval_suite import OnDisk


def run_suites(options: Namespace, workspace: Workspace, device: str) -> dict[str, Figures]:
    """Prepare every suite, open the model, measure it, and show a table a suite.

    Args:
        options: ``model``, ``suite``, ``data_root``, ``final``; ``run``, ``from_run``, ``search_shards``,
            ``index``, ``keep_vectors`` of retrieval.
        workspace: Where stages are looked for, and openings of test sets recorded.
        device: Where the model encodes.

    Returns:
        Suite to set to figure.

    Raises:
        BadInput: An unknown suite, missing or malformed files, or no such model.
    """
    from stillhouse.sweeps.openings import record_opening
    from stillhouse.training.run import open_model

    prepared = prepare_suites(options, workspace, device)
    model = open_model(options.model, workspace, device) if options.from_run is None else None
    figures: dict[str, Figures] = {}
    for name, benchmark in prepared.items():
        if benchmark.opens:
            before = record_opening(workspace, benchmark.opens, options.model or str(options.from_run))
            say(f"{name}: test sets opened (before: {before} times)")
        figures[name] = benchmark.measure(model)
        _show(name, benchmark, figures[name])
    return figures


def prepare_suites(options: Namespace, workspace: Workspace, device: str) -> dict[str, Benchmark]:
    """The suites that ``--suite`` names, their files read and checked."""
    wanted = suites_named(options.suite)
    on_disk = _on_disk(options, workspace, device)
    root = options.data_root or os.environ.get("STILLHOUSE_DATA", "")
    if any(name not in NEED_NO_DATA for name in wanted):
        require(
            bool(root) and Path(root).is_dir(),
            "--data-root is the folder with the published files",
            data_root=root,
            remedy="Give --data-root DIR, or set STILLHOUSE_DATA.",
        )
    how = Options(final=options.final, run=options.run, from_run=options.from_run, on_disk=on_disk)
    return {name: SUITES[name](root, how) for name in wanted}


def check_flags(options: Namespace) -> None:
    """Refuse flags that do not go together, before Ray is started or a file is read."""
    wanted = suites_named(options.suite)
    given = {
        "--run": options.run is not None,
        "--from-run": options.from_run is not None,
        "--search-shards": options.search_shards != 1,
        "--index": bool(options.index),
        "--keep-vectors": options.keep_vectors,
    }
    for flag in (flag for flag, is_given in given.items() if is_given):
        require("retrieval" in wanted, f"{flag} goes with --suite retrieval", suite=options.suite)
        fits = options.from_run is None or flag == "--from-run"
        require(fits, f"{flag} and --from-run are not given together")
    require(options.search_shards >= 1, "search_shards >= 1", search_shards=options.search_shards)
    for text in options.index:
        check_index(parse_index(text))
    if options.from_run is not None:
        alone = not options.model and wanted == ("retrieval",)
        rule = "--from-run goes without a model, with --suite retrieval alone"
        require(alone, rule, model=options.model, suite=options.suite)
    else:
        require(bool(options.model), "a model is given", remedy="Give MODEL, or --from-run FILE.")


def _on_disk(options: Namespace, workspace: Workspace, device: str) -> OnDisk | None:
    """What the flags of retrieval ask for beyond vectors in memory."""
    from stillhouse.training.run import identity_of

    if options.search_shards == 1 and not options.index and not options.keep_vectors:
        return None
    indexes = tuple(parse_index(text) for text in options.index)
    model = f"{identity_of(options.model, workspace)} {device}"
    return OnDisk(workspace, model, options.search_shards, indexes, options.keep_vectors)


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
    for note in benchmark.notes:
        say(f"note: {note}")


def _written(value: float | None, digits: int) -> str:
    if value is None:
        return ""
    whole = abs(value) >= 1000 and value == int(value)
    return f"{value:,.0f}" if whole else f"{value:.{digits}f}"
