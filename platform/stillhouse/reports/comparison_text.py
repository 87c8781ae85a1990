"""A comparison as Markdown and as CSV."""

import csv
import io
import math
from collections.abc import Sequence

from stillhouse.reports.entries import COSTS, Entry
from stillhouse.reports.tables import markdown

_CALLED = {
    "parameters": "parameters",
    "megabytes": "MB",
    "sentences_per_second": "sentences/s",
    "latency_ms_p50": "latency, ms",
    "seconds": "seconds",
}
_NEVER = ("store", "fingerprint", "seed")


def label(figure: str) -> str:
    """A figure in words: ``dev/docsearch_cosine_mrr_at_10`` becomes ``dev docsearch mrr@10``."""
    if figure in _CALLED:
        return _CALLED[figure]
    split, _, name = figure.rpartition("/")
    words = [word for word in name.replace("_at_", "@").split("_") if word != "cosine"]
    return " ".join([*split.split("/"), *words]).strip()


def columns(lines: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """The parameters that differ between lines of runs, and all figures: dev, test, costs."""
    ran = [line for line in lines if line.kind in ("trial", "best", "run") and line.parameters]
    names = list(dict.fromkeys(name for line in ran for name in line.parameters))
    differ = [
        name for name in names if name not in _NEVER and len({line.parameters.get(name) for line in ran}) > 1
    ]
    figures = list(dict.fromkeys(name for line in lines for name in line.figures))
    last = [*COSTS, "seconds"]
    ordered = sorted((name for name in figures if name not in last), key=lambda name: name.split("/")[0])
    return differ, [*ordered, *(name for name in last if name in figures)]


def shared(lines: Sequence[Entry]) -> dict[str, str]:
    """What all lines of runs have in common."""
    ran = [line for line in lines if line.kind in ("trial", "best", "run")]
    first = dict(ran[0].parameters) if ran else {}
    return {
        name: value
        for name, value in first.items()
        if name not in _NEVER and all(line.parameters.get(name) == value for line in ran)
    }


def cells(lines: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Heading and rows for people to read; the best trial is marked."""
    differ, figures = columns(lines)
    header = ["", *differ, *(label(name) for name in figures), "ended"]
    rows = []
    for line in lines:
        own = line.kind in ("trial", "best", "run")
        rows.append(
            [
                f"{line.name} *" if line.kind == "best" else line.name,
                *(short_text(line.parameters.get(name, "–")) if own else "–" for name in differ),
                *(_figure(name, line) for name in figures),
                line.state,
            ]
        )
    return header, rows


def as_markdown(lines: Sequence[Entry], title: str) -> str:
    """A heading, what is shared, and the table."""
    header, rows = cells(lines)
    same = ", ".join(f"{name} {value}" for name, value in shared(lines).items())
    notes = [f"All runs: {same}." if same else "", _legend(lines)]
    told = "\n\n".join(note for note in notes if note)
    return f"# {title}\n\n{told}\n\n{markdown(header, rows, left={0, len(header) - 1})}\n"


def as_csv(lines: Sequence[Entry]) -> str:
    """All columns under their own names, numbers in full; a figure over seeds has its ``… sd`` beside."""
    names = list(dict.fromkeys(name for line in lines for name in line.parameters))
    _, figures = columns(lines)
    spread = {name for line in lines for name in line.spread}
    header = ["name", "kind", "sweep", "state", "runs", *names]
    for name in figures:
        header += [name, f"{name} sd"] if name in spread else [name]
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(header)
    for line in lines:
        row: list[object] = [line.name, line.kind, line.sweep, line.state, line.runs]
        row += [line.parameters.get(name, "") for name in names]
        for name in figures:
            row.append(line.figures.get(name, ""))
            if name in spread:
                row.append(line.spread.get(name, ""))
        table.writerow(row)
    return written.getvalue()


def short_text(value: str) -> str:
    """A logged parameter in few characters: a long fraction with three digits."""
    try:
        number = float(value)
    except ValueError:
        return value
    if value.lstrip("-").isdigit() or not math.isfinite(number):
        return value
    return f"{number:.3g}"


def written(name: str, value: float) -> str:
    """A figure for people to read."""
    if not math.isfinite(value):
        return "–"
    if name == "parameters":
        return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value:,.0f}"
    if name in ("seconds", "sentences_per_second"):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if name == "megabytes" else f"{value:.2f}" if name in COSTS else f"{value:.4f}"


def _figure(name: str, line: Entry) -> str:
    if name not in line.figures:
        return "–"
    told = written(name, line.figures[name])
    return f"{told} ± {written(name, line.spread[name])}" if line.spread.get(name) else told


def _legend(lines: Sequence[Entry]) -> str:
    told = ["\\* is the best trial, the one that was tested." if any(e.kind == "best" for e in lines) else ""]
    if any(line.spread for line in lines):
        told.append("± is the standard deviation over seeds.")
    return " ".join(part for part in told if part)
