"""The figures of a sweep as PNG, by matplotlib, without a display."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.reports.figures_data import (
    BEST,
    COLOURS,
    TEACHER,
    WORDS,
    Axis,
    axes,
    best_of,
    front,
    quality_of,
    second_name,
)
from stillhouse.search.records import TrialRecord

_DPI = 130


def draw_curves(
    records: Sequence[TrialRecord], quality: str, teacher: float | None, title: str, path: Path
) -> None:
    """Quality against examples seen, a line a trial."""
    figure, plot = _new(8.5, 5.0)
    best, told = best_of(records), set[str]()
    for record in sorted(records, key=lambda r: r is best):
        points = [(x, y) for x, y in sorted(record.curve.items()) if math.isfinite(y)]
        if not points:
            continue
        shown = (
            f"best: trial {record.number} ({quality_of(record):.4f})"
            if record is best
            else WORDS[record.state]
        )
        label = "" if shown in told else shown
        told.add(shown)
        x, y = zip(*points, strict=True)
        style = (
            {"color": BEST, "lw": 2.6, "ms": 6}
            if record is best
            else {"color": COLOURS[record.state], "lw": 1.3, "ms": 4}
        )
        dashes = "--" if record.state == "FAIL" else "-"
        plot.plot(x, y, dashes, marker="o", alpha=1.0 if record is best else 0.75, label=label, **style)
    if teacher is not None:
        plot.axhline(teacher, color=TEACHER, ls=":", lw=1.5, label=f"teacher ({teacher:.4f})")
    plot.set(title=title, xlabel="examples seen", ylabel=f"{quality} (dev)")
    plot.xaxis.set_major_formatter(thousands())
    if told or teacher is not None:
        plot.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    save(figure, path)


def draw_importances(shares: Mapping[str, float], finished: int, title: str, path: Path) -> None:
    """A bar a hyper-parameter, the largest on top."""
    figure, plot = _new(8.5, max(2.4, 1.6 + 0.42 * len(shares)))
    names = list(shares)[::-1]
    bars = plot.barh(names, [100 * shares[name] for name in names], color=COLOURS["COMPLETE"], height=0.65)
    plot.bar_label(bars, fmt="%.0f %%", padding=4)
    few = "; few trials: read with care" if finished < 10 else ""
    plot.set(
        title=title, xlabel=f"share of the variance explained, % (fANOVA, {finished} finished trials{few})"
    )
    plot.set_xlim(0, 112 * max(max(shares.values()), 1e-9))
    plot.grid(False, axis="y")
    save(figure, path)


def draw_parallel(records: Sequence[TrialRecord], quality: str, title: str, path: Path) -> None:
    """A line a trial through its hyper-parameters to its quality; finished trials in colour."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shown = [record for record in records if not math.isnan(quality_of(record))]
    lines = axes(shown, quality)
    figure, plot = _new(max(8.5, 2.0 + 1.25 * len(lines)), 5.4)
    finished = [quality_of(r) for r in shown if r.state == "COMPLETE"] or [quality_of(r) for r in shown]
    scale = Normalize(min(finished), max(finished))
    palette = matplotlib.colormaps["viridis_r"]
    for row, record in sorted(
        enumerate(shown), key=lambda pair: (pair[1].state == "COMPLETE", quality_of(pair[1]))
    ):
        full = record.state == "COMPLETE"
        shift = 0.03 * (row / max(1, len(shown) - 1) - 0.5)
        heights = [axis.places[row] + (shift if axis.listed else 0.0) for axis in lines]
        colour = palette(scale(quality_of(record))) if full else COLOURS["PRUNED"]
        width = 2.8 if record is best_of(records) else 1.6
        plot.plot(
            range(len(lines)), heights, color=colour, lw=width if full else 0.9, alpha=0.9 if full else 0.6
        )
    for place, axis in enumerate(lines):
        _draw_axis(plot, place, axis, last=place == len(lines) - 1)
    rest = len(shown) - sum(record.state == "COMPLETE" for record in shown)
    plot.set(title=f"{title} (grey: {rest} not to the full budget)" if rest else title)
    plot.set_xticks(range(len(lines)), [_wrapped(axis.name) for axis in lines], fontsize=9)
    plot.set(xlim=(-0.45, len(lines) - 0.5), ylim=(-0.06, 1.06), yticks=[])
    plot.grid(False)
    plot.spines[:].set_visible(False)
    plot.tick_params(axis="x", length=0, pad=8)
    bar = figure.colorbar(ScalarMappable(scale, palette), ax=plot, pad=0.02, fraction=0.03)
    bar.set_label(f"{quality} (dev)")
    save(figure, path)


def draw_front(records: Sequence[TrialRecord], quality: str, title: str, path: Path) -> None:
    """Quality against the second objective; the front in colour, its trials by number."""
    figure, plot = _new(8.5, 5.0)
    best = front(records)
    others = [r for r in records if r.state == "COMPLETE" and r.values and r not in best]
    plot.scatter(
        [r.values[1] for r in others if r.values],
        [quality_of(r) for r in others],
        s=40,
        color=COLOURS["PRUNED"],
        label="beaten by another trial",
    )
    x, y = [r.values[1] for r in best if r.values], [quality_of(r) for r in best]
    plot.step(x, y, where="post", color=BEST, lw=1.5, zorder=2)
    plot.scatter(x, y, s=60, color=BEST, zorder=3, label="Pareto front (trial number)")
    for record, across, up in zip(best, x, y, strict=True):
        plot.annotate(
            str(record.number), (across, up), xytext=(-7, 4), textcoords="offset points", ha="right"
        )
    plot.margins(0.08, 0.12)
    plot.set(title=title, xlabel=second_name(records), ylabel=f"{quality} (dev)")
    plot.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    save(figure, path)


def _draw_axis(plot: Any, place: int, axis: Axis, *, last: bool) -> None:
    plot.axvline(place, color="#444444", lw=1.0, zorder=0, ymin=0.03, ymax=0.97)
    halo = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        side = {"ha": "right", "x": place - 0.04}
        plot.text(y=tick, s=label, va="center", fontsize=8, bbox=halo, zorder=4, **side)


def _new(width: float, height: float) -> tuple[Any, Any]:
    figure, (plot,) = new_plots(width, height, 1)
    return figure, plot


def new_plots(width: float, height: float, panels: int) -> tuple[Any, list[Any]]:
    """A figure of its own, outside pyplot, with panels side by side: nothing global, no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    plots = list(figure.subplots(1, panels, squeeze=False)[0])
    for plot in plots:
        plot.grid(True, color="#E4E4E4", lw=0.8)
        plot.set_axisbelow(True)
        plot.spines[["top", "right"]].set_visible(False)
    return figure, plots


def save(figure: Any, path: Path) -> None:
    """Write it; the same figure gives the same bytes."""
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})


def thousands() -> Any:
    """Ticks such as 20,000."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.0f}")


def _wrapped(name: str) -> str:
    """A long name over lines of about twelve characters, broken at its underscores."""
    lines = [""]
    for part in name.split("_"):
        joined = f"{lines[-1]}_{part}" if lines[-1] else part
        if len(joined) > 12 and lines[-1]:
            lines[-1] += "_"
            lines.append(part)
        else:
            lines[-1] = joined
    return "\n".join(lines)
