"""The figures of a sweep as one HTML page that needs nothing else, by plotly."""

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_atomically
from stillhouse.reports.figures_data import (
    BEST,
    COLOURS,
    TEACHER,
    WORDS,
    axes,
    best_of,
    front,
    quality_of,
    second_name,
    short,
)
from stillhouse.search.records import TrialRecord

_STYLE = (
    "body{font-family:system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}"
)


def write_page(
    records: Sequence[TrialRecord],
    quality: str,
    teacher: float | None,
    shares: Mapping[str, float] | str,
    title: str,
    path: Path,
) -> None:
    """Write the page; plotly's own code is in it once."""
    parts: list[tuple[str, Any]] = [("Learning curves", _curves(records, quality, teacher))]
    if any(len(record.values or ()) > 1 for record in records):
        parts.append(("Pareto front", _front(records, quality)))
    parts.append(("Parameter importances", shares if isinstance(shares, str) else _importances(shares)))
    parts.append(("Parallel coordinates", _parallel(records, quality)))
    told = [(heading, f"<p>{html.escape(c)}.</p>" if isinstance(c, str) else c) for heading, c in parts]
    write_atomically(path, page(title, told).encode())


def page(title: str, parts: Sequence[tuple[str, Any]], style: str = "") -> str:
    """A page of headings, each with HTML or with a figure of plotly below it.

    Args:
        title: Of the page.
        parts: Heading to HTML, or to a figure.
        style: CSS beside the usual.
    """
    body = [f"<h1>{html.escape(title)}</h1>"]
    first = True
    for number, (heading, content) in enumerate(parts):
        body.append(f"<h2>{html.escape(heading)}</h2>")
        if isinstance(content, str):
            body.append(content)
            continue
        body.append(
            content.to_html(
                full_html=False,
                include_plotlyjs=first,
                div_id=f"figure-{number}",
                config={"displaylogo": False, "responsive": True},
            )
        )
        first = False
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}{style}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _curves(records: Sequence[TrialRecord], quality: str, teacher: float | None) -> Any:
    import plotly.graph_objects as go

    figure, best = go.Figure(), best_of(records)
    for record in records:
        colour = BEST if record is best else COLOURS[record.state]
        points = sorted(record.curve.items())
        values = record.hyper_parameters.items()
        chosen = "<br>".join(html.escape(f"{name} = {short(value)}") for name, value in values)
        figure.add_scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            name=f"{record.number}: {WORDS[record.state]}{', best' if record is best else ''}",
            mode="lines+markers",
            line={"color": colour, "width": 3 if record is best else 1.5},
            hovertemplate=f"trial {record.number}<br>%{{x:,}} examples: %{{y:.4f}}<br>{chosen}"
            "<extra></extra>",
        )
    if teacher is not None:
        figure.add_hline(
            teacher, line_dash="dot", line_color=TEACHER, annotation_text=f"teacher {teacher:.4f}"
        )
    return _labelled(figure, "examples seen", f"{quality} (dev)")


def _importances(shares: Mapping[str, float]) -> Any:
    import plotly.graph_objects as go

    names = list(shares)[::-1]
    values = [100 * shares[name] for name in names]
    bars = go.Bar(
        x=values,
        y=names,
        orientation="h",
        text=[f"{value:.0f} %" for value in values],
        textposition="outside",
        cliponaxis=False,
        marker_color=COLOURS["COMPLETE"],
    )
    figure = _labelled(go.Figure(bars), "share of the variance explained, % (fANOVA)", "")
    return figure.update_layout(height=160 + 36 * len(names), yaxis={"automargin": True})


def _parallel(records: Sequence[TrialRecord], quality: str) -> Any:
    import plotly.graph_objects as go

    shown = [record for record in records if not math.isnan(quality_of(record))]
    if not shown:
        return "no trial has a figure yet"
    dimensions = [
        {
            "label": axis.name,
            "values": axis.places,
            "range": (0, 1),
            "tickvals": axis.ticks,
            "ticktext": axis.labels,
        }
        for axis in axes(shown, quality)
    ]
    colour = {
        "color": [quality_of(record) for record in shown],
        "colorscale": "Viridis",
        "reversescale": True,
        "showscale": True,
        "colorbar": {"title": {"text": f"{quality} (dev)", "side": "right"}},
    }
    figure = go.Figure(go.Parcoords(line=colour, dimensions=dimensions, labelangle=-20, labelside="bottom"))
    return figure.update_layout(height=480, margin={"l": 70, "r": 40, "t": 30, "b": 110})


def _front(records: Sequence[TrialRecord], quality: str) -> Any:
    import plotly.graph_objects as go

    best = front(records)
    rest = [r for r in records if r.state == "COMPLETE" and r.values and len(r.values) > 1 and r not in best]
    figure = go.Figure()
    for name, group, colour, mode in (
        ("beaten by another trial", rest, COLOURS["PRUNED"], "markers"),
        ("Pareto front", best, BEST, "lines+markers+text"),
    ):
        figure.add_scatter(
            x=[record.values[1] for record in group if record.values],
            y=[quality_of(record) for record in group],
            text=[str(record.number) for record in group],
            textposition="top left",
            name=name,
            mode=mode,
            line={"shape": "hv", "color": colour},
            marker={"size": 10, "color": colour},
        )
    return _labelled(figure, second_name(records), f"{quality} (dev)")


def _labelled(figure: Any, across: str, up: str) -> Any:
    return figure.update_layout(
        xaxis_title=across, yaxis_title=up, template="plotly_white", height=460, margin={"t": 30}
    )
