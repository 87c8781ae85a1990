"""How time and memory grow: embedding with rows and length, a sweep with its trials, search with passages.

    python benchmarks/growth.py --figures             # all; more than an hour
    python benchmarks/growth.py --figures --only rows

Writes ``docs/figures/growth-NAME.png`` and ``growth-NAME.csv`` beside it. Without ``--figures`` the tables
are printed only. It is no part of `make bench`.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import ROOT
from memory import measured
from models import first_layers, tiny_teacher
from retrieval_scale import HEADER, arguments
from retrieval_scale import measure as measured_search
from sentences import numbered, text_file
from sweeping import run_sweep
from trial_start import HELD_OUT, SMALL

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.corpora.tables import write_texts
from stillhouse.teachers.embedding import build_stores
from stillhouse.values.data import Store

Table = list[dict[str, float | str]]
Lines = Iterator[dict[str, float | str]]
FIGURES = ROOT / "docs" / "figures"
SEARCHED = {"their first stage": "distil_learning_rate", "their last stage only": "finetune_learning_rate"}


def by_rows(folder: Path, quick: bool) -> Lines:
    """Seconds and peak memory of reading and embedding short rows with a tiny teacher and Ray."""
    tiny_teacher(folder)
    for exponent in (4.0, 4.2) if quick else (4.0, 4.5, 5.0, 5.5, 6.0, 6.5):
        rows = round(10**exponent)
        report = measured(folder, rows)
        parts = {
            "reading s": report["reading"],
            "embedding s": report["embedding"],
            "peak MB": report["peak"],
        }
        yield {"series": "tiny teacher, two actors", "x": rows, **parts}


def by_length(folder: Path, quick: bool) -> Lines:
    """Measure seconds for 1000 sentences of a given length, with the real teacher on one thread."""
    model, workspace = first_layers(folder, 1 if quick else 6), Workspace(folder / "runs")
    rows = 64 if quick else 1024
    words = " ".join(numbered(2000)).split()
    for length in (4, 8) if quick else (4, 8, 16, 32, 64, 128):
        texts = [" ".join(words[row : row + length]) for row in range(rows)]
        texts_table = write_texts(workspace, f"words-{length}", texts, deduplicate=False)
        store = Store(texts_table, model, max_length=256)
        build_stores(workspace, [store], local=True)
        # Of the passes and the file; loading the model is not in it.
        seconds = read_manifest(workspace.path(store))["seconds"] * 1000 / rows
        yield {"series": "one thread", "x": length, "seconds": seconds}


def by_trials(folder: Path, quick: bool) -> Lines:
    """Seconds of whole sweeps, where trials differ in their first stage and where they share it."""
    budget = 256 if quick else 2048
    corpus, labelled = text_file(folder, budget + 2 * HELD_OUT), folder / "pairs.jsonl"
    texts = numbered(2 * budget // 8)
    pairs = [{"query": one, "passage": other} for one, other in zip(texts[::2], texts[1::2], strict=True)]
    labelled.write_text("\n".join(map(json.dumps, pairs)))
    data = ("--corpus", str(corpus), "--labelled", str(labelled), "--negatives", "0")
    budgets = ("--distil-budget", str(budget), "--finetune-budget", str(budget // 8))
    for series, name in SEARCHED.items():
        space = folder / f"{name}.yaml"
        space.write_text(
            f"method: ibkd\nfixed: {{distil_batch_size: 64, finetune_batch_size: 32}}\n"
            f"space:\n  {name}: {{low: 1e-5, high: 1e-3, log: true}}\n"
        )
        for trials in (1,) if quick else (1, 2, 4, 8, 16):
            flags = ("--space", str(space), "--trials", str(trials), *data, *budgets, *SMALL)
            began, ended = run_sweep(folder / f"{name}-{trials}", *flags)
            yield {"series": f"trials differ in {series}", "x": trials, "seconds": ended - began}


def by_search(folder: Path, quick: bool) -> Lines:
    """Seconds and memory of exact search in shards and of each index, 1000 queries of 384 dimensions."""
    for rows in (10_000, 16_384) if quick else (10_000, 31_623, 100_000, 316_228, 1_000_000):
        options = arguments().parse_args(["--rows", str(rows), *(["--queries", "20"] if quick else [])])
        for line in measured_search(folder / str(rows), options):
            said = dict(zip(HEADER, line, strict=True))
            assert said["same bits"] != "NO", f"{rows} passages: shards change the result"
            parts = {name: float(value) for name, value in said.items() if name not in HEADER[:2]}
            yield {"series": said["search"], "x": rows, **parts}


PLOTS: dict[str, tuple[Callable[[Path, bool], Lines], str, str]] = {
    "rows": (by_rows, "rows", "log"),
    "length": (by_length, "words a sentence", "log"),
    "trials": (by_trials, "trials of a sweep", "linear"),
    "search": (by_search, "passages", "log"),
}


def write(name: str, table: Table) -> None:
    """The table as CSV, and its plot: a panel a measure, a line a series."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, label, scale = PLOTS[name]
    FIGURES.mkdir(parents=True, exist_ok=True)
    with (FIGURES / f"growth-{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    measures = [key for key in table[0] if key not in ("series", "x")]
    columns = min(3, len(measures))
    lines = -(-len(measures) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(5 * columns, 3.5 * lines), squeeze=False)
    for axis, measure in zip(axes.flat, measures, strict=True):
        for series in dict.fromkeys(line["series"] for line in table):
            points: Any = [(line["x"], line[measure]) for line in table if line["series"] == series]
            axis.plot(*zip(*points, strict=True), marker="o", label=series)
        share = str(measure).startswith("recall")
        axis.set(xlabel=label, ylabel=measure, xscale=scale, yscale="linear" if share else scale)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(FIGURES / f"growth-{name}.png", dpi=120)


def main() -> int:
    """Measure, print, and write where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--figures", action="store_true", help="write docs/figures/growth-*.{png,csv}")
    parser.add_argument("--only", choices=tuple(PLOTS), help="one of them")
    parser.add_argument("--quick", action="store_true", help="small inputs: does it run?")
    options = parser.parse_args()
    for name in [options.only] if options.only else PLOTS:
        with tempfile.TemporaryDirectory() as held:
            table: Table = []
            for line in PLOTS[name][0](Path(held), options.quick):
                print(name, *(f"{key}={value}" for key, value in line.items()), flush=True)
                table.append(line)
        if options.figures:
            write(name, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
