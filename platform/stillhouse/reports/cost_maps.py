"""Figures of a comparison: quality against cost, alignment against uniformity, quality against data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from stillhouse.reports.comparison_tables import figure_text, label, short_text
from stillhouse.reports.entries import SPLITS, Entry
from stillhouse.reports.pages import Figure

KINDS = {
    "trial": ("trial", "#0072B2"),
    "run": ("run", "#CC79A7"),
    "untrained": ("untrained student", "#9A9A9A"),
    "baseline": ("baseline", "#009E73"),
    "best": ("best student", "#D55E00"),
    "teacher": ("teacher", "#222222"),
}
"""Kind of a row to its entry in the legend and its colour; drawn in this order."""

_AMOUNTS = ("sentences", "pairs")
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
"""Plotly's markers; one per method."""
_GREY = "#888888"


@dataclass(frozen=True)
class Point:
    """One row of the table in a figure; its lines are shown while the pointer is over it."""

    x: float
    y: float
    kind: str
    method: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Map:
    """One figure: a panel of points for each split that has some; ``up`` says what y is, without the split.

    If ``joined``, the best points of each method are joined by a line.
    """

    name: str
    title: str
    across: str
    up: str
    panels: dict[str, tuple[Point, ...]]
    joined: bool = False


def selecting(rows: Sequence[Entry], quality: str = "") -> str:
    """Choose the figure that stands for quality, without its split; empty where no row has one of a split.

    It is the user's choice, else what the sweeps selected by, else the commonest figure.
    """
    selected = [row.parameters["selected_by"] for row in rows if "selected_by" in row.parameters]
    known = [name.split("/", 1)[1] for row in rows for name in row.figures if name.startswith(SPLITS)]
    for name in (quality, *selected):
        name = name.replace("@", "_at_")
        if name in known:
            return name
    return Counter(known).most_common(1)[0][0] if known else ""


def maps(rows: Sequence[Entry], quality: str) -> list[Map]:
    """Return the figures that these rows can fill; only rows that ran to their end are in them."""
    whole = [row for row in rows if row.whole]
    name = label(f"/{quality}")
    size, latency = (
        _against([(row, row.figures[cost]) for row in whole if cost in row.figures], quality)
        for cost in ("megabytes", "latency_ms_p50")
    )
    found = [
        Map("quality-size", "Quality against size", "size, MB", name, size),
        Map("quality-latency", "Quality against latency", "latency per text, median, ms", name, latency),
        Map(
            "alignment-uniformity",
            "Alignment and uniformity (lower is better in both)",
            "uniformity",
            "alignment",
            _geometry(whole),
        ),
    ]
    for amount in _AMOUNTS:
        panels = _amounts(whole, quality, amount)
        found.append(Map(f"data-{amount}", f"Quality against {amount}", amount, name, panels, joined=True))
    return [each for each in found if each.panels]


def _against(rows: Sequence[tuple[Entry, float]], quality: str) -> dict[str, tuple[Point, ...]]:
    return _panels(
        {
            split: [
                _point(row, x, row.figures[f"{split}/{quality}"])
                for row, x in rows
                if f"{split}/{quality}" in row.figures
            ]
            for split in SPLITS
        }
    )


def _geometry(rows: Sequence[Entry]) -> dict[str, tuple[Point, ...]]:
    panels: dict[str, list[Point]] = {split: [] for split in SPLITS}
    for row in rows:
        for split in SPLITS:
            pair = [
                next((v for n, v in row.figures.items() if n.startswith(split) and n.endswith(kind)), None)
                for kind in ("uniformity", "alignment")
            ]
            if pair[0] is not None and pair[1] is not None:
                panels[split].append(_point(row, pair[0], pair[1]))
    return _panels(panels)


def _amounts(rows: Sequence[Entry], quality: str, amount: str) -> dict[str, tuple[Point, ...]]:
    trained = [row for row in rows if row.trained and row.parameters.get(amount, "").isdigit()]
    if len({row.parameters[amount] for row in trained}) < 2:
        return {}
    return _against([(row, float(row.parameters[amount])) for row in trained], quality)


def _panels(panels: dict[str, list[Point]]) -> dict[str, tuple[Point, ...]]:
    """Keep panels with at least two points: a single one compares nothing."""
    return {split: tuple(points) for split, points in panels.items() if len(points) > 1}


def _point(row: Entry, x: float, y: float) -> Point:
    method = row.parameters.get("method", "") if row.trained else ""
    chosen = [f"{name} {short_text(value)}" for name, value in row.parameters.items()] if row.trained else []
    figures = [f"{label(name)} {figure_text(name, value)}" for name, value in row.figures.items()]
    return Point(x, y, row.kind, method, (row.name, *chosen, *figures))


def draw_map(drawn: Map) -> Figure:
    """Draw a map: colours are kinds of models, shapes are methods."""
    from plotly.subplots import make_subplots

    figure = make_subplots(cols=len(drawn.panels), horizontal_spacing=0.1)
    methods = sorted({point.method for points in drawn.panels.values() for point in points if point.method})
    shapes = dict(zip(methods, _SHAPES * len(methods), strict=False))
    for column, (split, points) in enumerate(drawn.panels.items(), start=1):
        x_range, y_range = extents(points)
        figure.update_xaxes(title_text=drawn.across, range=x_range, col=column)
        figure.update_yaxes(title_text=f"{drawn.up} ({split})", range=y_range, col=column)
        for method in methods if drawn.joined else ():
            x, y = zip(*highest([point for point in points if point.method == method]), strict=True)
            figure.add_scatter(
                x=x,
                y=y,
                mode="lines",
                line={"color": _GREY, "width": 1.2},
                hoverinfo="skip",
                showlegend=False,
                row=1,
                col=column,
            )
        _add_points(figure, points, shapes, column)
    if len(methods) > 1:
        for method in methods:
            marker = {"size": 11, "color": _GREY, "symbol": [shapes[method]]}
            figure.add_scatter(x=[None], y=[None], mode="markers", name=method, marker=marker)
    figure.update_layout(template="plotly_white", height=440, margin={"t": 20})
    return Figure(drawn.name, drawn.title, figure)


def _add_points(figure: Any, points: Sequence[Point], shapes: Mapping[str, str], column: int) -> None:
    """Add one trace per kind of row; the legend has each kind once."""
    labels = {trace.name for trace in figure.data}
    for rank, (kind, (name, colour)) in enumerate(KINDS.items()):
        own = [point for point in points if point.kind == kind]
        if own:
            figure.add_scatter(
                x=[point.x for point in own],
                y=[point.y for point in own],
                mode="markers",
                name=name,
                legendgroup=kind,
                legendrank=1000 - rank,
                showlegend=name not in labels,
                marker={
                    "size": 11,
                    "color": colour,
                    "symbol": [shapes.get(point.method, "circle") for point in own],
                    "line": {"color": "white", "width": 1},
                },
                hovertext=["<br>".join(map(escape, point.lines)) for point in own],
                hoverinfo="text",
                row=1,
                col=column,
            )


def extents(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the ends of both axes with room around the points; a tenth of the value where all are equal."""
    ends = []
    for values in ([point.x for point in points], [point.y for point in points]):
        low, high = min(values), max(values)
        room = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
        ends.append((low - room, high + room))
    return ends


def highest(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the highest point at each place, from left to right."""
    places = sorted({point.x for point in points})
    return [(x, max(point.y for point in points if point.x == x)) for x in places]
