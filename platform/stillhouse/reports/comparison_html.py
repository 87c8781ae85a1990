"""A comparison as one HTML page that needs nothing else: tables, and the figures by plotly."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_atomically
from stillhouse.reports.comparison_text import cells, columns, shared, short_text
from stillhouse.reports.cost_maps import KINDS, Map
from stillhouse.reports.cost_maps_png import extents, highest
from stillhouse.reports.entries import SPLITS, Entry
from stillhouse.reports.figures_html import page

_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
_STYLE = (
    "body{max-width:1400px}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.82em}"
    "th,td{padding:.3em .55em;text-align:right;border-bottom:1px solid #e4e4e4;white-space:nowrap}"
    "th{white-space:normal;vertical-align:bottom;border-bottom:2px solid #444;font-weight:600}"
    "td:first-child,th:first-child,td.text,th.text{text-align:left}tr.best{background:#fdf0e6}"
)


def write_comparison(lines: Sequence[Entry], drawn: Sequence[Map], title: str, path: Path) -> None:
    """Write the page."""
    header, rows = cells(lines)
    differ, figures = columns(lines)
    first = 1 + len(differ)
    place = {name: first + at for at, name in enumerate(figures)}
    costs = [at for name, at in place.items() if "/" not in name]
    parts: list[tuple[str, Any]] = []
    for split in SPLITS:
        own = [at for name, at in place.items() if name.startswith(f"{split}/")]
        told = {at: row for at, row in enumerate(rows) if any(row[column] != "–" for column in own)}
        if told:
            shown = [0, *own, *costs, len(header) - 1]
            parts.append((f"Quality ({split}) and cost", _table(lines, header, told, shown)))
    chosen = {at: row for at, row in enumerate(rows) if lines[at].kind in ("trial", "best", "run")}
    if differ:
        parts.append(("What differs", _table(lines, header, chosen, list(range(first)))))
    same = shared(lines)
    if same:
        words = ", ".join(f"{name} {short_text(value)}" for name, value in same.items())
        parts.append(("What all runs share", f"<p>{html.escape(words)}</p>"))
    parts += [(each.title, _figure(each)) for each in drawn]
    write_atomically(path, page(title, parts, style=_STYLE).encode())


def _table(lines: Sequence[Entry], header: list[str], rows: Mapping[int, list[str]], shown: list[int]) -> str:
    """Some lines and columns of the table; words to the left, numbers to the right."""
    text = len(header) - 1
    body = []
    for number, row in rows.items():
        inside = "".join(
            f"<td{' class=text' if at == text else ''}>{html.escape(row[at])}</td>" for at in shown
        )
        body.append(f"<tr{' class=best' if lines[number].kind == 'best' else ''}>{inside}</tr>")
    head = "".join(f"<th{' class=text' if at == text else ''}>{html.escape(header[at])}</th>" for at in shown)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div>'


def _figure(drawn: Map) -> Any:
    from plotly.subplots import make_subplots

    figure = make_subplots(cols=len(drawn.panels), horizontal_spacing=0.1)
    methods = sorted({point.method for points in drawn.panels.values() for point in points if point.method})
    told: set[str] = set()
    for column, (split, points) in enumerate(drawn.panels.items(), start=1):
        across, up = extents(points)
        figure.update_xaxes(title_text=drawn.across, range=across, col=column)
        figure.update_yaxes(title_text=f"{drawn.up} ({split})", range=up, col=column)
        for method in methods if drawn.joined else ():
            best = highest([point for point in points if point.method == method])
            figure.add_scatter(
                x=[x for x, _ in best],
                y=[y for _, y in best],
                mode="lines",
                line={"color": "#888888", "width": 1.2},
                hoverinfo="skip",
                showlegend=False,
                row=1,
                col=column,
            )
        for rank, (kind, (called, colour)) in enumerate(KINDS.items()):
            own = [point for point in points if point.kind == kind]
            if not own:
                continue
            shapes = [_SHAPES[methods.index(p.method) % len(_SHAPES)] if p.method else "circle" for p in own]
            figure.add_scatter(
                x=[point.x for point in own],
                y=[point.y for point in own],
                mode="markers",
                name=called,
                legendgroup=kind,
                legendrank=1000 - rank,
                showlegend=kind not in told,
                marker={
                    "size": 11,
                    "color": colour,
                    "symbol": shapes,
                    "line": {"color": "white", "width": 1},
                },
                hovertext=["<br>".join(map(html.escape, point.told)) for point in own],
                hoverinfo="text",
                row=1,
                col=column,
            )
            told.add(kind)
    return figure.update_layout(template="plotly_white", height=440, margin={"t": 20})
