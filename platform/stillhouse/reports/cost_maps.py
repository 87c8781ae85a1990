"""What the figures of a comparison show, before it is drawn: quality against cost, and where vectors lie."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stillhouse.reports.comparison_text import label, short_text, written
from stillhouse.reports.entries import SPLITS, Entry
from stillhouse.reports.figures_data import BEST, COLOURS, TEACHER

KINDS = {
    "trial": ("trial", COLOURS["COMPLETE"]),
    "run": ("run", COLOURS["FAIL"]),
    "untrained": ("untrained student", COLOURS["PRUNED"]),
    "baseline": ("MSE baseline", "#009E73"),
    "best": ("best student", BEST),
    "teacher": ("teacher", TEACHER),
}
"""Kind of a line to what the legend says, and the colour; drawn in this order."""

_AMOUNTS = ("sentences", "pairs")


@dataclass(frozen=True)
class Point:
    """One line of the table in a figure.

    Attributes:
        x: Across.
        y: Up.
        kind: As `Entry.kind`.
        method: Its method; empty where it has none.
        told: What stands beside it when the mouse is over it, line by line.
    """

    x: float
    y: float
    kind: str
    method: str
    told: tuple[str, ...]


@dataclass(frozen=True)
class Map:
    """One figure: a panel for each split that has points.

    Attributes:
        name: Of its file.
        title: Above it.
        across: What x is, with its unit.
        up: What y is; the split stands before it.
        panels: Split to points.
        joined: Whether the points of a method are joined by a line, at their best.
    """

    name: str
    title: str
    across: str
    up: str
    panels: dict[str, tuple[Point, ...]]
    joined: bool = False


def selecting(lines: Sequence[Entry], wanted: str = "") -> str:
    """The figure that quality is: as asked for, what the sweeps selected by, or the dev figure most have.

    Returns:
        Its name without the split; empty where no line has a figure of a split.
    """
    named = [line.parameters["selected_by"] for line in lines if "selected_by" in line.parameters]
    known = [name.split("/", 1)[1] for line in lines for name in line.figures if name.startswith(SPLITS)]
    for name in (wanted, *named):
        name = name.replace("@", "_at_")
        if name in known:
            return name
    return Counter(known).most_common(1)[0][0] if known else ""


def maps(lines: Sequence[Entry], quality: str) -> list[Map]:
    """The figures that these lines can fill; only lines that ran to their end are in them.

    Args:
        lines: The table.
        quality: A figure without its split.
    """
    whole = [line for line in lines if line.whole]
    named = label(f"/{quality}")
    found = [
        Map("quality-size", "Quality against size", "size, MB", named, _against(whole, quality, "megabytes")),
        Map(
            "quality-latency",
            "Quality against latency",
            "latency of one text, median, ms",
            named,
            _against(whole, quality, "latency_ms_p50"),
        ),
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
        found.append(Map(f"data-{amount}", f"Quality against {amount}", amount, named, panels, joined=True))
    return [each for each in found if each.panels]


def _against(lines: Sequence[Entry], quality: str, cost: str) -> dict[str, tuple[Point, ...]]:
    return _panels(
        {
            split: [
                _point(line, line.figures[cost], line.figures[f"{split}/{quality}"])
                for line in lines
                if cost in line.figures and f"{split}/{quality}" in line.figures
            ]
            for split in SPLITS
        }
    )


def _geometry(lines: Sequence[Entry]) -> dict[str, tuple[Point, ...]]:
    panels: dict[str, list[Point]] = {split: [] for split in SPLITS}
    for line in lines:
        for split in SPLITS:
            pair = [
                next((v for n, v in line.figures.items() if n.startswith(split) and n.endswith(kind)), None)
                for kind in ("uniformity", "alignment")
            ]
            if pair[0] is not None and pair[1] is not None:
                panels[split].append(_point(line, pair[0], pair[1]))
    return _panels(panels)


def _amounts(lines: Sequence[Entry], quality: str, amount: str) -> dict[str, tuple[Point, ...]]:
    ran = [e for e in lines if e.kind in ("trial", "best", "run") and e.parameters.get(amount, "").isdigit()]
    if len({line.parameters[amount] for line in ran}) < 2:
        return {}
    return _panels(
        {
            split: [
                _point(line, float(line.parameters[amount]), line.figures[f"{split}/{quality}"])
                for line in ran
                if f"{split}/{quality}" in line.figures
            ]
            for split in SPLITS
        }
    )


def _panels(panels: dict[str, list[Point]]) -> dict[str, tuple[Point, ...]]:
    """Panels of two points and more: a single one compares nothing."""
    return {split: tuple(points) for split, points in panels.items() if len(points) > 1}


def _point(line: Entry, x: float, y: float) -> Point:
    own = line.kind in ("trial", "best", "run")
    method = line.parameters.get("method", "") if own else ""
    chosen = [f"{name} {short_text(value)}" for name, value in line.parameters.items()] if own else []
    figures = [f"{label(name)} {written(name, value)}" for name, value in line.figures.items()]
    return Point(x, y, line.kind, method, (line.name, *chosen, *figures))
