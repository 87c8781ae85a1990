"""The figures of a comparison as PNG, by matplotlib, without a display."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillhouse.reports.cost_maps import KINDS, Map, Point
from stillhouse.reports.figures_png import new_plots, save, thousands

MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw_map(drawn: Map, path: Path) -> None:
    """One figure, a panel a split: colours are kinds of models, shapes are methods."""
    figure, plots = new_plots(4.6 * len(drawn.panels) + 2.4, 4.4, len(drawn.panels))
    methods = sorted({point.method for points in drawn.panels.values() for point in points if point.method})
    for plot, (split, points) in zip(plots, drawn.panels.items(), strict=True):
        for kind, (_, colour) in KINDS.items():
            for point in points:
                if point.kind == kind:
                    shape = _shape(methods, point)
                    plot.plot(
                        point.x, point.y, shape, color=colour, ms=8, mec="white", mew=0.8, clip_on=False
                    )
        if drawn.joined:
            for method in methods:
                _join(plot, [point for point in points if point.method == method])
        for axis, values in zip("xy", extents(points), strict=True):
            plot.set(**{f"{axis}lim": values})
        if drawn.joined:
            plot.xaxis.set_major_formatter(thousands())
        plot.set(xlabel=drawn.across, ylabel=f"{drawn.up} ({split})")
    figure.get_layout_engine().set(wspace=0.08)
    figure.suptitle(drawn.title)
    figure.legend(handles=_legend(drawn, methods), loc="outside right upper", frameon=False)
    save(figure, path)


def _join(plot: Any, points: Sequence[Point]) -> None:
    best = highest(points)
    plot.plot([x for x, _ in best], [y for _, y in best], color="#888888", lw=1.2, zorder=1)


def extents(points: Sequence[Point]) -> list[tuple[float, float]]:
    """The ends of both axes, with room around the points; of equal values a tenth of them."""
    found = []
    for values in ([point.x for point in points], [point.y for point in points]):
        low, high = min(values), max(values)
        room = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
        found.append((low - room, high + room))
    return found


def highest(points: Sequence[Point]) -> list[tuple[float, float]]:
    """The highest point at each place, from left to right."""
    places = sorted({point.x for point in points})
    return [(x, max(point.y for point in points if point.x == x)) for x in places]


def _shape(methods: Sequence[str], point: Point) -> str:
    return MARKERS[methods.index(point.method) % len(MARKERS)] if point.method else "o"


def _legend(drawn: Map, methods: Sequence[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    there = {point.kind for points in drawn.panels.values() for point in points}
    handles = [
        Line2D([], [], marker="o", ls="", color=colour, ms=8, label=called)
        for kind, (called, colour) in reversed(KINDS.items())
        if kind in there
    ]
    if len(methods) > 1:
        shapes = zip(methods, MARKERS * len(methods), strict=False)
        handles += [
            Line2D([], [], marker=shape, ls="", color="#888888", ms=8, label=m) for m, shape in shapes
        ]
    return handles
