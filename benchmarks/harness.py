"""Our path and a peer's on the same inputs, in turn, several times: medians, their ratio, and the target.

A script measures one claim. It prints its rows as a table, and writes them to ``--json`` for `run.py`.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "platform"))

DATA = os.environ.get("STILLHOUSE_DATA", "")
"""Folder with published data sets; where it is not given, inputs are made."""


@dataclass(frozen=True)
class Row:
    """One claim and what was measured.

    Attributes:
        what: The operation and the data that it ran on.
        against: The peer, or the limit.
        target: As a sentence, such as ``>= 2.5 x``.
        measured: The figure that the target is about, in its unit.
        met: Whether the target is met.
        ours: Our figure, with its unit.
        peer: The peer's figure, with its unit.
        note: Sizes, agreement of the results and spread, for the reader.
    """

    what: str
    against: str
    target: str
    measured: str
    met: bool
    ours: str = ""
    peer: str = ""
    note: str = ""


def in_turn(runs: Mapping[str, Callable[[], Any]], repeats: int, warmups: int = 1) -> dict[str, list[float]]:
    """Seconds of every run of each, A B A B …, so that a machine that drifts is the same for all."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(warmups + repeats):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            if turn >= warmups:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(peer: list[float], ours: list[float]) -> float:
    """How many times quicker ours is: the median of the ratios pair by pair."""
    return statistics.median(theirs / mine for theirs, mine in zip(peer, ours, strict=True))


def at_least(value: float, target: float, unit: str = "×") -> dict[str, Any]:
    """The fields of a row whose figure is to be at least ``target``."""
    return {"target": f"≥ {target:g}{unit}", "measured": f"{value:.2f}{unit}", "met": value >= target}


def at_most(value: float, target: float, unit: str) -> dict[str, Any]:
    """The fields of a row whose figure is to be at most ``target``."""
    return {"target": f"≤ {target:g} {unit}", "measured": f"{value:.3g} {unit}", "met": value <= target}


def median(values: list[float]) -> float:
    """The median, as `statistics` has it."""
    return statistics.median(values)


def spread(values: list[float], unit: str = "s") -> str:
    """Median with lowest and highest."""
    return f"{median(values):.3g} {unit} ({min(values):.3g}–{max(values):.3g})"


def machine() -> dict[str, str]:
    """Processor, cores, and the versions of what was measured."""
    from importlib.metadata import PackageNotFoundError, version

    names = ("stillhouse", "torch", "transformers", "sentence-transformers", "ray", "faiss-cpu", "numpy")
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    cpu = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": f"{cpu}, {cores} cores", "python": platform.python_version(), **found}


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    head = "| what | against | target | measured | ours | peer | note |\n|---|---|---|---|---|---|---|"
    lines = [
        f"| {row.what} | {row.against} | {row.target} | {'' if row.met else '**missed** '}{row.measured} "
        f"| {row.ours} | {row.peer} | {row.note} |"
        for row in rows
    ]
    return "\n".join([head, *lines])


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each")
    parser.add_argument("--quick", action="store_true", help="small inputs: does it run, not how fast")
    return parser


def finish(rows: list[Row], options: argparse.Namespace) -> int:
    """Print the rows and write them."""
    print(table(rows), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], ensure_ascii=False, indent=1))
    return 0
