"""The figures of a sweep, by `optuna.visualization`: plotly for the page, matplotlib for the pictures.

Each figure is one call on the study, made with both back ends. Only axis titles, the styles of the learning
curves and the intervals of the importances are our own.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_atomically
from stillhouse.reports.importances import (
    Importances,
    error_bars,
    finished_trials,
    first_value,
    importance_cells,
    importance_note,
    importances,
    load_study,
)
from stillhouse.reports.pages import Figure, Section, Table, write_page
from stillhouse.reports.tables import comparison_cells, ranking_cells
from stillhouse.reports.trials import STATES, best_of, ranked, second_name
from stillhouse.search.records import TrialRecord
from stillhouse.tracking import readable

BEST = "#D55E00"
TEACHER = "#222222"
COLOURS = {"COMPLETE": "#0072B2", "PRUNED": "#9A9A9A", "FAIL": "#CC79A7", "RUNNING": "#E0C000"}
_IMPORTANCES = "What decides the quality"
_NOISE = "pure noise, on average"
_DPI = 100


@dataclass(frozen=True)
class _Curve:
    """Style of one trial's learning curve: its entry in the legend, colour and line width."""

    label: str
    colour: str
    width: float


@dataclass(frozen=True)
class _Drawing:
    """One figure of a study.

    Attributes:
        name: File name without its ending.
        title: Heading of the figure.
        draw: Draws it with a back end: `optuna.visualization` or `optuna.visualization.matplotlib`.
        inches: Width and height of the picture.
        height: Height in the page, in pixels.
        axes: Titles of both axes; None keeps Optuna's.
        curves: Styles of the curves by Optuna's names of them.
        teacher: Level of a horizontal line.
        slanted: Whether the labels below the picture are slanted to fit.
        bold: Whether plotly's lines are drawn stronger than Optuna draws them.
        shares: Importances, whose intervals are drawn over Optuna's bars.
    """

    name: str
    title: str
    draw: Callable[[Any], Any]
    inches: tuple[float, float] = (8.5, 5.0)
    height: int = 470
    axes: tuple[str, str] | None = None
    curves: Mapping[str, _Curve] = field(default_factory=dict)
    teacher: float | None = None
    slanted: bool = False
    bold: bool = False
    shares: Importances | None = None


def write_figures(
    folder: Path,
    records: Sequence[TrialRecord],
    quality: str,
    *,
    study: Path,
    teacher: Mapping[str, float] | None = None,
    tested: Mapping[str, Mapping[str, Any]] | None = None,
    title: str = "Sweep",
    remarks: Sequence[str] = (),
    shares: Importances | None = None,
    findings: Sequence[Section] = (),
) -> Path:
    """Write the page and the pictures of a sweep. The page says why the importances cannot be drawn.

    Args:
        folder: Where the files go; those of an earlier call are replaced.
        records: All trials.
        quality: The dev figure that was maximised.
        study: The SQLite file of the trials' Optuna study.
        teacher: The teacher's dev figures, for the learning curves and the share kept.
        tested: The final comparison, as `tables.comparison_table` takes it.
        title: Title of the page, such as the sweep's name.
        remarks: Sentences below the final comparison's heading.
        shares: The importances of the hyper-parameters; None computes them.
        findings: Further sections, which follow the tables.

    Returns:
        The folder: ``sweep.html`` with ``plotly.min.js``, ``learning-curves.png`` and, where they can be
        drawn, ``pareto-front.png``, ``history.png``, ``importances.png``, ``parallel-coordinates.png`` and
        ``slices.png``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.png"):
        stale.unlink()
    optuna_study = load_study(study)
    shares = importances(optuna_study) if shares is None else shares
    sections = [*_tables(records, quality, teacher, tested, " ".join(remarks)), *findings]
    for drawing in _drawings(optuna_study, records, quality, (teacher or {}).get(quality), shares):
        figure = Figure(drawing.name, drawing.title, _plot(drawing), _picture(drawing, title))
        write_atomically(folder / f"{figure.name}.png", figure.png)
        sections.append(_section(drawing, figure))
    if shares.missing:
        sections.append(Section(_IMPORTANCES, text=importance_note(shares)))
    write_page(folder / "sweep.html", title, sections)
    return folder


def _section(drawing: _Drawing, figure: Figure) -> Section:
    """Put a figure below its heading, importances with their table."""
    if drawing.shares is None:
        return Section(drawing.title, figures=(figure,))
    table = Table(*importance_cells(drawing.shares), left={0, 3})
    return Section(drawing.title, importance_note(drawing.shares), (table,), (figure,))


def _drawings(
    study: Any, records: Sequence[TrialRecord], quality: str, teacher: float | None, shares: Importances
) -> Iterator[_Drawing]:
    """The figures that these trials can fill."""
    label, finished = f"{readable(quality)} (dev)", finished_trials(study)
    pair = len(study.directions) > 1
    target: dict[str, Any] = {"target_name": label}
    if pair:
        target["target"] = first_value
    names = {name for trial in finished for name in trial.params}
    yield _Drawing(
        "learning-curves",
        "Learning curves",
        lambda backend: backend.plot_intermediate_values(study),
        axes=("examples seen", label),
        curves=_curves(records),
        teacher=teacher,
    )
    if not finished:
        return
    if pair:
        yield _Drawing(
            "pareto-front",
            "Pareto front",
            lambda backend: backend.plot_pareto_front(study, target_names=[label, second_name(records)]),
        )
    yield _Drawing(
        "history",
        "Best trial so far",
        lambda backend: backend.plot_optimization_history(study, **target),
    )
    if shares.shares:
        known = _known(shares)
        yield _Drawing(
            "importances",
            _IMPORTANCES,
            lambda backend: backend.plot_param_importances(study, evaluator=known, **target),
            inches=(8.5, max(2.8, 1.6 + 0.42 * len(shares.shares))),
            height=190 + 34 * len(shares.shares),
            axes=(f"share of the variance (fANOVA, {shares.trials} finished trials) with 95 % interval", ""),
            shares=shares,
        )
    yield _Drawing(
        "parallel-coordinates",
        "Trials as parallel coordinates",
        lambda backend: backend.plot_parallel_coordinate(study, **target),
        inches=(max(8.5, 3.0 + 1.6 * len(names)), 5.4),
        bold=True,
    )
    yield _Drawing(
        "slices",
        "Quality by hyper-parameter",
        lambda backend: backend.plot_slice(study, **target),
        inches=(6.0, 4.4),
        slanted=True,
    )


def _plot(drawing: _Drawing) -> Any:
    """The figure by plotly."""
    import optuna.visualization

    figure = drawing.draw(optuna.visualization)
    figure.update_layout(title=None, template="plotly_white", margin={"t": 40}, height=drawing.height)
    if drawing.axes is not None:
        x, y = drawing.axes
        figure.update_layout(xaxis_title=x, yaxis_title=y, yaxis_automargin=True)
    labels: set[str] = set()
    for trace in figure.data:
        style = drawing.curves.get(trace.name)
        if style is None:
            continue
        trace.update(
            hovertemplate=f"{trace.name}: %{{y:.4f}} after %{{x:,}} examples<extra></extra>",
            name=style.label,
            legendgroup=style.label,
            showlegend=style.label not in labels,
            line={"color": style.colour, "width": style.width},
            marker={"color": style.colour},
        )
        labels.add(style.label)
    if labels:
        figure.update_layout(showlegend=True)
    if drawing.bold:
        figure.update_traces(line_width=2, opacity=0.9, selector={"mode": "lines"})
    if drawing.shares is not None:
        (bars,) = figure.data
        below, above = error_bars(drawing.shares, bars.y)
        bars.update(
            error_x={"type": "data", "symmetric": False, "array": above, "arrayminus": below}, text=None
        )
        figure.add_vline(
            drawing.shares.equal_share, line_dash="dot", line_color=TEACHER, annotation_text=_NOISE
        )
    if drawing.teacher is not None:
        words = f"teacher {drawing.teacher:.4f}"
        figure.add_hline(drawing.teacher, line_dash="dot", line_color=TEACHER, annotation_text=words)
    return figure


def _picture(drawing: _Drawing, title: str) -> bytes:
    """The figure by matplotlib, as PNG; the same study gives the same bytes."""
    import optuna.visualization

    with _pyplot(drawing.inches) as pyplot:
        drawing.draw(optuna.visualization.matplotlib)
        figure = pyplot.gcf()
        for axes in figure.axes:
            for place in ("left", "center"):
                axes.set_title("", loc=place)
            if drawing.slanted:
                axes.tick_params(axis="x", which="both", labelrotation=60)
        if drawing.axes is not None:
            x, y = drawing.axes
            figure.axes[0].set(xlabel=x, ylabel=y)
            if figure.axes[0].get_legend() is not None:
                figure.axes[0].get_legend().remove()
        if drawing.curves:
            _style(figure.axes[0], drawing)
        if drawing.shares is not None:
            _add_intervals(figure.axes[0], drawing.shares)
        figure.suptitle(f"{title}: {drawing.title}")
        written = io.BytesIO()
        figure.savefig(written, dpi=_DPI, bbox_inches="tight", metadata={"Software": None})
    return written.getvalue()


def _style(axes: Any, drawing: _Drawing) -> None:
    """Give matplotlib's learning curves their styles, and a legend with one entry per style."""
    labels: set[str] = set()
    for line in axes.lines:
        style = drawing.curves.get(line.get_label())
        if style is None:
            continue
        line.set(
            color=style.colour,
            linewidth=style.width,
            zorder=2 + style.width,
            label="_" if style.label in labels else style.label,
        )
        labels.add(style.label)
    if drawing.teacher is not None:
        words = f"teacher {drawing.teacher:.4f}"
        axes.axhline(drawing.teacher, color=TEACHER, linestyle=":", linewidth=1.5, label=words)
        labels.add(words)
    if labels:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def _add_intervals(axes: Any, shares: Importances) -> None:
    """Draw the intervals over matplotlib's bars, in place of the numbers that Optuna writes there."""
    for words in list(axes.texts):
        words.remove()
    names = [label.get_text() for label in axes.get_yticklabels()]
    middles = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
    widths = [bar.get_width() for bar in axes.patches]
    axes.errorbar(
        widths, middles, xerr=error_bars(shares, names), fmt="none", ecolor=TEACHER, capsize=3, linewidth=1.2
    )
    axes.axvline(shares.equal_share, color=TEACHER, linestyle=":", linewidth=1.2, label=_NOISE)
    axes.set_xlim(0, 1.02 * max(each.high for each in shares.shares))
    axes.legend(loc="lower right", frameon=False)


def _known(shares: Importances) -> Any:
    """Make an evaluator that gives Optuna's figures the importances that are known already."""
    from optuna.importance import BaseImportanceEvaluator

    class Known(BaseImportanceEvaluator):  # type: ignore[misc]
        def evaluate(
            self, study: Any, params: list[str] | None = None, *, target: Any = None
        ) -> dict[str, float]:
            return {each.name: each.share for each in shares.shares}

    return Known()


@contextmanager
def _pyplot(inches: tuple[float, float]) -> Iterator[Any]:
    """Pyplot without a display; its settings and figures are undone afterwards."""
    import matplotlib

    with warnings.catch_warnings(), matplotlib.rc_context({"figure.figsize": inches}):
        warnings.simplefilter("ignore")  # Optuna calls its matplotlib back end experimental.
        import matplotlib.pyplot as pyplot

        pyplot.switch_backend("agg")
        try:
            yield pyplot
        finally:
            pyplot.close("all")


def _curves(records: Sequence[TrialRecord]) -> dict[str, _Curve]:
    """Colour each curve by how its trial ended, and highlight the best one."""
    best = best_of(records)
    return {
        f"Trial{record.number}": _Curve(f"best: trial {record.number}", BEST, 3.0)
        if record is best
        else _Curve(STATES[record.state], COLOURS[record.state], 1.3)
        for record in records
    }


def _tables(
    records: Sequence[TrialRecord],
    quality: str,
    teacher: Mapping[str, float] | None,
    tested: Mapping[str, Mapping[str, Any]] | None,
    remarks: str,
) -> Iterator[Section]:
    """The final comparison, and the trials sorted by the figure that selects."""
    if tested:
        yield Section("Test split", text=remarks, tables=(Table(*comparison_cells(tested)),))
    rows, best = ranked(records), best_of(records)
    if rows:
        header, cells = ranking_cells(rows, quality, teacher)
        marked = {place for place, record in enumerate(rows) if record is best}
        yield Section(
            f"Trials by {readable(quality)} (dev)",
            text="* is the best finished trial." if best else "",
            tables=(Table(header, cells, left={len(header) - 1}, marked=marked),),
        )
