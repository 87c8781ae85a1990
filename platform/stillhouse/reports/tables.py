"""The tables of a sweep: its trials, and the final comparison; for the terminal and as Markdown."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from stillhouse.evaluation.geometry import GEOMETRY
from stillhouse.reports.figures_data import WORDS, best_of, quality_of, short, varied
from stillhouse.search.records import TrialRecord

WIDTH = 140
_GAP = "  "
_COST = {"parameters": "parameters", "megabytes": "MB", "sentences_per_second": "sentences/s"}
_WHO = {
    "teacher": "teacher",
    "student": "best student",
    "baseline": "MSE baseline",
    "untrained": "untrained student",
}

Cells = list[list[str]]


def trial_table(
    records: Sequence[TrialRecord],
    quality: str,
    teacher: Mapping[str, float] | None = None,
    width: int = WIDTH,
) -> str:
    """A line a trial, the best one marked: hyper-parameters, dev figures, cost, and how it ended.

    What all trials share stands above the table. Where it would be wider than ``width``, figures beside
    ``quality`` are left out first (Markdown has them), then hyper-parameters move to lines of their own.

    Args:
        records: All trials.
        quality: The dev figure that was maximised.
        teacher: The teacher's dev figures, for the share kept.
        width: Columns of the terminal.
    """
    if not records:
        return "no trial was started."
    names, same = varied(records)
    figures = _figures(records, quality)
    notes = [f"all trials: {', '.join(f'{k}={short(v)}' for k, v in same.items())}"] if same else []
    if teacher and quality in teacher:
        notes.append(f"teacher: {quality} {teacher[quality]:.4f}; kept is the share of it")
    shown, beside = list(names), list(figures)
    while True:
        header, cells = _trial_cells(records, shown, beside, quality, teacher)
        lines = aligned(header, cells, left={len(header) - 1})
        if max(map(len, lines)) <= width or not (beside[1:] or shown):
            break
        if beside[1:]:
            beside.pop()
        else:
            shown.pop()
    notes.append(_legend(figures[: len(beside)]))
    if best_of(records):
        notes.append("* is the best trial to the full budget")
    if len(beside) < len(figures):
        notes.append(f"not shown: {', '.join(figures[len(beside) :])}")
    hidden = names[len(shown) :]
    body = [line for note in notes if note for line in textwrap.wrap(note, width, subsequent_indent="  ")]
    return "\n".join([*body, *_with_reasons(lines, len(lines) - len(records), records, hidden, width)])


def trial_table_markdown(
    records: Sequence[TrialRecord], quality: str, teacher: Mapping[str, float] | None = None
) -> str:
    """The trials with all their hyper-parameters and dev figures, as a Markdown table."""
    names = list(dict.fromkeys(name for record in records for name in record.hyper_parameters))
    header, cells = _trial_cells(records, names, _figures(records, quality), quality, teacher)
    reasons = [[*row[:-1], _ended(record)] for row, record in zip(cells, records, strict=True)]
    return markdown(header, reasons, left={len(header) - 1})


def comparison_table(tested: Mapping[str, Mapping[str, Any]], width: int = WIDTH) -> str:
    """Teacher, best student, MSE baseline and untrained student on the test split, a line a model.

    Args:
        tested: Model to ``{"metrics": figures, "cost": figures}``, and a ``title`` that is not the usual one.
        width: Columns of the terminal; a longer table is cut into two, the cost below.
    """
    header, cells = _comparison_cells(tested)
    legend = textwrap.wrap(_legend(_test_figures(tested)), width, subsequent_indent="  ")
    lines = aligned(header, cells, left={0})
    if max(map(len, lines)) <= width:
        return "\n".join([*legend, *lines])
    told, costs = legend, len(_COST)
    for part in (slice(1, -costs), slice(-costs, None)):
        told += [*aligned([header[0], *header[part]], [[row[0], *row[part]] for row in cells], left={0}), ""]
    return "\n".join(told[:-1])


def comparison_table_markdown(tested: Mapping[str, Mapping[str, Any]]) -> str:
    """The same comparison as a Markdown table."""
    return markdown(*_comparison_cells(tested), left={0})


def _trial_cells(
    records: Sequence[TrialRecord],
    names: Sequence[str],
    figures: Sequence[str],
    quality: str,
    teacher: Mapping[str, float] | None,
) -> tuple[list[str], Cells]:
    best, base = best_of(records), (teacher or {}).get(quality, math.nan)
    kept = ["kept"] if math.isfinite(base) else []
    header = ["trial", *names, *_brief(figures), *kept, "examples", "seconds", "ended"]
    cells = []
    for record in records:
        told = {**record.metrics, quality: record.metrics.get(quality, quality_of(record))}
        cells.append(
            [
                f"{'*' if record is best else ''}{record.number}",
                *(short(record.hyper_parameters.get(name)) for name in names),
                *(_figure(told.get(name)) for name in figures),
                *([_share(told[quality], base)] if kept else []),
                f"{record.examples:,}",
                "–" if record.seconds is None else f"{record.seconds:,.0f}",
                WORDS[record.state],
            ]
        )
    return header, cells


def _figures(records: Sequence[TrialRecord], quality: str) -> list[str]:
    """All dev figures but those of geometry, the selected one first."""
    found = dict.fromkeys([quality, *(name for record in records for name in record.metrics)])
    return [name for name in found if not name.endswith(GEOMETRY)]


def _brief(figures: Sequence[str]) -> list[str]:
    """``docsearch_cosine_mrr@10`` becomes ``mrr@10`` where no other figure would be called so."""
    parts = {name: [part for part in name.split("_") if part != "cosine"] for name in figures}
    ends = [split[-1] for split in parts.values()]
    return [
        parts[name][-1] if "_cosine" in name and ends.count(parts[name][-1]) == 1 else name
        for name in figures
    ]


def _legend(figures: Sequence[str]) -> str:
    """What the brief names stand for."""
    told = [
        f"{brief} is {name}" for brief, name in zip(_brief(figures), figures, strict=True) if brief != name
    ]
    return ", ".join(told)


def _with_reasons(
    lines: list[str], first: int, records: Sequence[TrialRecord], hidden: Sequence[str], width: int
) -> list[str]:
    """The table's lines, each followed by what had no room in it."""
    told = lines[:first]
    for line, record in zip(lines[first:], records, strict=True):
        told.append(line)
        rest = [f"{name}={short(record.hyper_parameters.get(name))}" for name in hidden]
        indented = textwrap.TextWrapper(width, initial_indent=" " * 7, subsequent_indent=" " * 9)
        told += indented.wrap(", ".join(rest))
        if record.reason:
            indented.max_lines = 3
            told += indented.wrap(_ended(record))
    return told


def _ended(record: TrialRecord) -> str:
    reason = " ".join((record.reason or "").split())
    return f"{WORDS[record.state]}: {reason}" if reason else WORDS[record.state]


def _comparison_cells(tested: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], Cells]:
    names = _test_figures(tested)
    order = [who for who in _WHO if who in tested] + [who for who in tested if who not in _WHO]
    cells = []
    for who in order:
        metrics, cost = tested[who]["metrics"], tested[who].get("cost", {})
        cells.append(
            [
                tested[who].get("title") or _WHO.get(who, who),
                *(_figure(metrics.get(n)) for n in names),
                *(_cost(n, cost) for n in _COST),
            ]
        )
    return ["", *_brief(names), *_COST.values()], cells


def _test_figures(tested: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = dict.fromkeys(name for figures in tested.values() for name in figures["metrics"])
    return [name for name in found if not name.endswith(GEOMETRY)]


def _cost(name: str, cost: Mapping[str, float]) -> str:
    value = cost.get(name)
    if value is None:
        return "–"
    if name == "parameters":
        return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value:,.0f}"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _figure(value: Any) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.4f}"


def _share(value: float, base: float) -> str:
    share = value / base if base else math.nan
    return f"{100 * share:.1f} %" if math.isfinite(share) else "–"


def aligned(header: Sequence[str], cells: Cells, left: set[int]) -> list[str]:
    """Lines of equal columns, those in ``left`` to the left; long headings stand on several lines."""
    stacked = [_stacked(name) for name in header]
    height = max(len(lines) for lines in stacked)
    above = [[""] * (height - len(lines)) + lines for lines in stacked]
    widths = [
        max(len(text) for text in [*above[column], *(row[column] for row in cells)])
        for column in range(len(header))
    ]
    rows = [[above[column][line] for column in range(len(header))] for line in range(height)]
    rule = ["-" * width for width in widths]

    def joined(row: Sequence[str]) -> str:
        padded = (
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return _GAP.join(padded).rstrip()

    return [joined(row) for row in [*rows, rule, *cells]]


def _stacked(name: str, most: int = 10) -> list[str]:
    """A heading broken at its underscores into lines of about ten characters."""
    lines = [""]
    for part in name.split("_"):
        joined = f"{lines[-1]}_{part}" if lines[-1] else part
        if len(joined) > most and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    return [f"{line}_" for line in lines[:-1]] + lines[-1:]


def markdown(header: Sequence[str], cells: Cells, left: set[int]) -> str:
    """A Markdown table; the columns in ``left`` to the left."""
    rule = [":--" if column in left else "--:" for column in range(len(header))]
    escaped = [[text.replace("|", "\\|") for text in row] for row in [header, rule, *cells]]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)
