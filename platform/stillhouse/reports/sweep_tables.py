"""The tables of a sweep, for the terminal and as Markdown: its trials, and the final comparison."""

import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from stillhouse.core.roles import ASYMMETRIC
from stillhouse.evaluation.vector_geometry import GEOMETRY
from stillhouse.reports.layout import WIDTH, markdown_table, table_lines
from stillhouse.reports.trials import STATES, quality_of, ranked, short, varied
from stillhouse.search.records import TrialRecord, best_record
from stillhouse.tracking import MSE_BASELINE, readable

SYNTHETIC = "synthetic"
"""Prefix of the figures of synthetic queries."""
_TEXT = frozenset({0, 2})
"""Columns of the final comparison that hold text."""
_COST = {"parameters": "parameters", "megabytes": "MB", "sentences_per_second": "sentences/s"}
_MODELS = {
    "teacher": "teacher",
    "student": "best student",
    "trial": "its trial",
    "baseline": MSE_BASELINE,
    "baseline_trial": "baseline's trial",
    "untrained": "untrained student",
}

Rows = list[list[str]]


def trial_table(
    records: Sequence[TrialRecord],
    quality: str,
    teacher: Mapping[str, float] | None = None,
    width: int = WIDTH,
) -> str:
    """Format one line per trial, the best one marked: hyper-parameters, dev figures, cost, and how it ended.

    What all trials share stands below the table, as the long names of figures do. If the table would be wider
    than ``width``, figures other than ``quality`` are left out first (the Markdown table has them), then
    hyper-parameters move to lines of their own.
    """
    if not records:
        return "no trial was started."
    names, same = varied(records)
    figures = _figures(records, quality)
    notes = [f"all trials: {', '.join(f'{k}={short(v)}' for k, v in same.items())}"] if same else []
    if teacher and quality in teacher:
        notes.append(f"teacher: {quality} {teacher[quality]:.4f}; kept is the share of it")
    shown, shown_figures = list(names), list(figures)
    while True:
        header, cells = _trial_cells(records, shown, shown_figures, quality, teacher)
        lines = table_lines(header, cells, {len(header) - 1}, width=sys.maxsize)
        if max(map(len, lines)) <= width or not (shown_figures[1:] or shown):
            break
        if shown_figures[1:]:
            shown_figures.pop()
        else:
            shown.pop()
    notes.append(_legend(figures[: len(shown_figures)]))
    if best_record(records):
        notes.append("* is the best trial to the full budget")
    if len(shown_figures) < len(figures):
        notes.append(f"not shown: {', '.join(figures[len(shown_figures) :])}")
    hidden = names[len(shown) :]
    body = [line for note in notes if note for line in textwrap.wrap(note, width, subsequent_indent="  ")]
    return "\n".join([*_with_reasons(lines, len(lines) - len(records), records, hidden, width), *body])


def ranking_cells(
    records: Sequence[TrialRecord], quality: str, teacher: Mapping[str, float] | None = None
) -> tuple[list[str], Rows]:
    """Return the header and one row per trial in few columns: the selecting figure, then what varied."""
    names, _ = varied(records)
    header, cells = _trial_cells(records, names, [quality], quality, teacher)
    header[1 + len(names)] = readable(quality)
    order = [
        0,
        *range(1 + len(names), len(header) - 3),
        *range(1, 1 + len(names)),
        *range(len(header) - 3, len(header)),
    ]
    rows = [[*row[:-1], _ending(record)] for row, record in zip(cells, records, strict=True)]
    return [header[at] for at in order], [[row[at] for at in order] for row in rows]


def trial_table_markdown(
    records: Sequence[TrialRecord], quality: str, teacher: Mapping[str, float] | None = None
) -> str:
    """Format the trials with all their hyper-parameters and dev figures as a Markdown table."""
    names = list(dict.fromkeys(name for record in records for name in record.hyper_parameters))
    header, cells = _trial_cells(records, names, _figures(records, quality), quality, teacher)
    rows = [[*row[:-1], _ending(record)] for row, record in zip(cells, records, strict=True)]
    return markdown_table(header, rows, {len(header) - 1})


def comparison_table(tested: Mapping[str, Mapping[str, Any]], width: int = WIDTH) -> str:
    """Format one line per model on the test split: teacher, best student, baseline, untrained student.

    Args:
        tested: Model to ``{"metrics": figures, "cost": figures}``; a ``title`` replaces the model's usual
            name; ``trials``, ``refitted``, ``examples`` and ``labelled`` say what it had.
        width: Columns of the terminal; a wider table is cut into several, which stand one below the other.
    """
    header, cells = comparison_cells(tested)
    legend = textwrap.wrap(_legend(_test_figures(tested)), width, subsequent_indent="  ")
    return "\n".join([*table_lines(header, cells, _TEXT, width=width), *legend])


def comparison_table_markdown(tested: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the same comparison as a Markdown table."""
    return markdown_table(*comparison_cells(tested), _TEXT)


def comparison_cells(tested: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], Rows]:
    """Return the header and one row per model of the final comparison."""
    names = _test_figures(tested)
    order = [model for model in _MODELS if model in tested]
    order += [model for model in tested if model not in _MODELS]
    cells = []
    for model in order:
        had = tested[model]
        metrics, cost = had["metrics"], had.get("cost", {})
        cells.append(
            [
                title_of(model, tested),
                f"{had['trials']:,}" if "trials" in had else "–",
                "–" if "refitted" not in had else "yes" if had["refitted"] else "no",
                *(f"{had[name]:,}" if name in had else "–" for name in ("examples", "labelled")),
                *(_figure(metrics.get(name)) for name in names),
                *(_cost(name, cost) for name in _COST),
            ]
        )
    return ["", "trials", "refit", "examples", "labelled", *_brief(names), *_COST.values()], cells


def title_of(model: str, tested: Mapping[str, Mapping[str, Any]]) -> str:
    """Name a model of the final comparison as tables do."""
    return str(tested[model].get("title") or _MODELS.get(model, model))


def headline(tested: Mapping[str, Mapping[str, Any]], figure: str) -> str:
    """Say in one line what the best student is worth beside its teacher; empty without a test figure."""
    if not figure:
        return ""
    best, teacher = tested["student"], tested.get("teacher") or {"metrics": {}}
    own, base = best["metrics"][figure], teacher["metrics"].get(figure, math.nan)
    share, name = _share(own, base, digits=0), _metric(figure)
    if share == "–":
        return f"best student: {name} {own:.4f}"
    parts = [f"{share} of the teacher's {name} ({own:.4f} / {base:.4f})"]
    cost, others = best.get("cost", {}), teacher.get("cost", {})
    if "megabytes" in cost and "megabytes" in others:
        parts.append(f"{_share(cost['megabytes'], others['megabytes'], digits=0)} of its size")
    if "sentences_per_second" in cost and "sentences_per_second" in others:
        faster = cost["sentences_per_second"] / others["sentences_per_second"]
        parts.append(f"{faster:.1f} times as fast")
    return f"best student: {', '.join(parts)}"


def sweep_description(
    records: Sequence[TrialRecord],
    quality: str,
    tested: Mapping[str, Mapping[str, Any]],
    model: str,
    teacher: Mapping[str, float] | None = None,
    most: int = 5000,
    remarks: Sequence[str] = (),
) -> str:
    """Describe a sweep in Markdown: its best student, the final comparison and the best trials.

    ``model`` is the name under which the student is registered; empty if it is not. ``remarks`` stand above
    the tables. Of more than ``most`` characters, the trials at the end of the ranking are left out first.
    """
    rows, name = ranked(records), readable(quality)
    header, cells = ranking_cells(rows, quality, teacher)
    best = best_record(records) or rows[0]
    share = _share(quality_of(best), (teacher or {}).get(quality, math.nan))
    kept = f", {share} of the teacher's" if share != "–" else ""
    registered = f"Registered as `models:/{model}@champion`." if model else "Not registered."
    text = "\n\n".join(
        [
            f"**Best student: {best.title}**, {name} {quality_of(best):.4f} on dev{kept}. {registered}",
            *remarks,
            f"## Test split\n\n{comparison_table_markdown(tested)}",
            f"## Trials by {name} (dev)\n\n",
        ]
    )
    for count in range(len(cells), -1, -1):
        rest = f"\n\n{len(cells) - count} more trials are in `report.md`." if count < len(cells) else ""
        whole = f"{text}{markdown_table(header, cells[:count], {len(header) - 1})}{rest}"
        if len(whole) <= most:
            break
    return whole


def data_line(facts: Mapping[str, Any]) -> str:
    """Say what a collection of one's own, or of synthetic queries, is and what it kept out of training."""
    if "collection" not in facts:
        return ""
    left_out = [f"{facts['texts_left_out']:,} texts"] if "texts_left_out" in facts else []
    left_out += [f"{facts['pairs_left_out']:,} pairs"] if "pairs_left_out" in facts else []
    return f"{facts['collection']}. Kept out of training: {' and '.join(left_out) or 'nothing'}."


def _trial_cells(
    records: Sequence[TrialRecord],
    names: Sequence[str],
    figures: Sequence[str],
    quality: str,
    teacher: Mapping[str, float] | None,
) -> tuple[list[str], Rows]:
    best, base = best_record(records), (teacher or {}).get(quality, math.nan)
    kept = ["kept"] if math.isfinite(base) else []
    header = ["trial", *names, *_brief(figures), *kept, "examples", "seconds", "ended"]
    cells = []
    for record in records:
        metrics = {**record.metrics, quality: record.metrics.get(quality, quality_of(record))}
        cells.append(
            [
                f"{'*' if record is best else ''}{record.title.replace('trial ', '')}",
                *(short(record.hyper_parameters.get(name)) for name in names),
                *(_figure(metrics.get(name)) for name in figures),
                *([_share(metrics[quality], base)] if kept else []),
                f"{record.examples:,}",
                "–" if record.seconds is None else f"{record.seconds:,.0f}",
                STATES[record.state],
            ]
        )
    return header, cells


def _figures(records: Sequence[TrialRecord], quality: str) -> list[str]:
    """All dev figures except those of geometry, the selecting one first."""
    names = dict.fromkeys([quality, *(name for record in records for name in record.metrics)])
    return [name for name in names if not name.endswith(GEOMETRY)]


def _brief(figures: Sequence[str]) -> list[str]:
    """Shorten ``docsearch_cosine_mrr@10`` to ``mrr@10`` where no other figure would have the same name."""
    short_names = {
        name: _shortened([part for part in name.split("_") if part != "cosine"]) for name in figures
    }
    known = list(short_names.values())
    return [
        short_names[name] if "_cosine" in name and known.count(short_names[name]) == 1 else name
        for name in figures
    ]


def _shortened(parts: Sequence[str]) -> str:
    """The metric alone; that queries are synthetic, or documents the teacher's, is never left out."""
    return " ".join([part for part in parts[:-1] if part in (SYNTHETIC, ASYMMETRIC)] + [parts[-1]])


def _legend(figures: Sequence[str]) -> str:
    """Return the meanings of the brief names."""
    pairs = zip(_brief(figures), figures, strict=True)
    return ", ".join(f"{brief} is {name}" for brief, name in pairs if brief != name)


def _with_reasons(
    lines: list[str], first: int, records: Sequence[TrialRecord], hidden: Sequence[str], width: int
) -> list[str]:
    """Follow each line of the table with what did not fit into it."""
    text = lines[:first]
    for line, record in zip(lines[first:], records, strict=True):
        text.append(line)
        rest = [f"{name}={short(record.hyper_parameters.get(name))}" for name in hidden]
        indented = textwrap.TextWrapper(width, initial_indent=" " * 7, subsequent_indent=" " * 9)
        text += indented.wrap(", ".join(rest))
        if record.reason:
            indented.max_lines = 3
            text += indented.wrap(_ending(record))
    return text


def _ending(record: TrialRecord) -> str:
    reason = " ".join((record.reason or "").split())
    return f"{STATES[record.state]}: {reason}" if reason else STATES[record.state]


def _test_figures(tested: Mapping[str, Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for figures in tested.values() for name in figures["metrics"])
    return [name for name in names if not name.endswith(GEOMETRY)]


def _cost(name: str, cost: Mapping[str, float]) -> str:
    value = cost.get(name)
    if value is None:
        return "–"
    if name == "parameters":
        return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value:,.0f}"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _figure(value: Any) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.4f}"


def _share(value: float, base: float, digits: int = 1) -> str:
    share = value / base if base else math.nan
    return f"{100 * share:.{digits}f} %" if math.isfinite(share) else "–"


def _metric(figure: str) -> str:
    """A figure in a headline: ``MRR@10`` where its last word is a metric at a rank, else all of its words."""
    words = readable(figure)
    last = words.rpartition(" ")[2]
    return last.replace("mrr", "MRR").replace("ndcg", "nDCG") if "@" in last else words
