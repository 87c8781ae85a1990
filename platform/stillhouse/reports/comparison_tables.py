"""The rows of a comparison as a table: for people, as Markdown and as CSV."""

import csv
import io
import math
from collections.abc import Sequence

from stillhouse.reports.entries import COSTS, SPLITS, Entry
from stillhouse.reports.escaping import in_csv, in_markdown
from stillhouse.reports.layout import markdown_table, table_lines
from stillhouse.tracking import readable

_LABELS = {
    "parameters": "parameters",
    "megabytes": "MB",
    "sentences_per_second": "sentences/s",
    "latency_ms_p50": "latency, ms",
    "seconds": "seconds",
}
_HIDDEN = ("store", "fingerprint", "seed")


def label(figure: str) -> str:
    """Put a figure's name into words: ``dev/docsearch_cosine_mrr_at_10`` becomes ``dev docsearch mrr@10``."""
    if figure in _LABELS:
        return _LABELS[figure]
    split, _, name = figure.rpartition("/")
    return " ".join([*split.split("/"), readable(name)]).strip()


def columns(rows: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """Return the parameters that differ between trained models, and all figures: dev, test, costs."""
    trained = [row for row in rows if row.trained and row.parameters]
    names = list(dict.fromkeys(name for row in trained for name in row.parameters))
    differ = [
        name
        for name in names
        if name not in _HIDDEN and len({row.parameters.get(name) for row in trained}) > 1
    ]
    figures = list(dict.fromkeys(name for row in rows for name in row.figures))
    last = [*COSTS, "seconds"]
    ordered = sorted((name for name in figures if name not in last), key=lambda name: name.split("/")[0])
    return differ, [*ordered, *(name for name in last if name in figures)]


def shared(rows: Sequence[Entry]) -> dict[str, str]:
    """Return the parameters that all trained models have in common."""
    trained = [row for row in rows if row.trained]
    first = dict(trained[0].parameters) if trained else {}
    return {
        name: value
        for name, value in first.items()
        if name not in _HIDDEN and all(row.parameters.get(name) == value for row in trained)
    }


def cells(rows: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Return the header and one row of texts per entry; the best student is marked."""
    differ, figures = columns(rows)
    header = ["", *differ, *(label(name) for name in figures), "ended"]
    table = [
        [
            f"{row.name} *" if row.kind == "best" else row.name,
            *(short_text(row.parameters.get(name, "–")) if row.trained else "–" for name in differ),
            *(_figure(name, row) for name in figures),
            row.state,
        ]
        for row in rows
    ]
    return header, table


def as_markdown(rows: Sequence[Entry], title: str) -> str:
    """Format a heading, what the runs share, and the table."""
    header, table = cells(rows)
    same = ", ".join(f"{name} {value}" for name, value in shared(rows).items())
    notes = [f"All runs: {in_markdown(same)}." if same else "", legend(rows, star="\\*")]
    text = "\n\n".join(note for note in notes if note)
    return f"# {in_markdown(title)}\n\n{text}\n\n{markdown_table(header, table, {0, len(header) - 1})}\n"


def as_lines(rows: Sequence[Entry], quality: str) -> list[str]:
    """Lay out what selects on each split and the costs for a terminal, the best on dev on top.

    ``quality`` is the figure that selects, without its split.
    """
    _, figures = columns(rows)
    selects = [name for split in SPLITS if (name := f"{split}/{quality}") in figures]
    shown = [*selects, *(name for name in figures if "/" not in name)]

    def order(row: Entry) -> list[float]:
        return [-row.figures.get(name, -math.inf) for name in selects]

    table = [
        [f"{row.name} *" if row.kind == "best" else row.name, *(_figure(n, row) for n in shown), row.state]
        for row in sorted(rows, key=order)
    ]
    header = ["", *map(label, shown), "ended"]
    lines = table_lines(header, table, {0, len(header) - 1})
    return [*lines, *([legend(rows)] if legend(rows) else [])]


def as_csv(rows: Sequence[Entry]) -> str:
    """Format all columns under their own names, numbers in full.

    A figure that was averaged over seeds is followed by its standard deviation, as ``… sd``.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.parameters))
    _, figures = columns(rows)
    spread = {name for row in rows for name in row.spread}
    header = ["name", "kind", "sweep", "state", "runs", *names]
    for name in figures:
        header += [name, f"{name} sd"] if name in spread else [name]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(map(in_csv, header))
    for row in rows:
        line: list[object] = [row.name, row.kind, row.sweep, row.state, row.runs]
        line += [row.parameters.get(name, "") for name in names]
        for name in figures:
            line.append(row.figures.get(name, ""))
            if name in spread:
                line.append(row.spread.get(name, ""))
        table.writerow(map(in_csv, line))
    return text.getvalue()


def short_text(value: str) -> str:
    """Shorten a logged parameter: a long fraction to three digits."""
    try:
        number = float(value)
    except ValueError:
        return value
    if value.lstrip("-").isdigit() or not math.isfinite(number):
        return value
    return f"{number:.3g}"


def figure_text(name: str, value: float) -> str:
    """Format a figure for people to read."""
    if not math.isfinite(value):
        return "–"
    if name == "parameters":
        return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value:,.0f}"
    if name in ("seconds", "sentences_per_second"):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if name == "megabytes" else f"{value:.2f}" if name in COSTS else f"{value:.4f}"


def legend(rows: Sequence[Entry], star: str = "*") -> str:
    """Say what the marks in the table mean."""
    marks = []
    if any(row.kind == "best" for row in rows):
        marks.append(f"{star} is the best student, which was exported.")
    if any(row.spread for row in rows):
        marks.append("± is the standard deviation over seeds.")
    return " ".join(marks)


def _figure(name: str, row: Entry) -> str:
    if name not in row.figures:
        return "–"
    text = figure_text(name, row.figures[name])
    return f"{text} ± {figure_text(name, row.spread[name])}" if row.spread.get(name) else text
