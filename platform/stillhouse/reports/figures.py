"""The figures of a sweep, by `optuna.visualization`: plotly for the page, matplotlib for the pictures.

Each figure is one call on the study, made with both back ends. Only axis titles and the styles of the
learning curves are our own.
"""

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_atomically
from stillhouse.reports.pages import Figure, Section, Table, write_page
from stillhouse.reports.tables import comparison_cells, ranking_cells
from stillhouse.reports.trials import STATES, best_of, ranked, second_name
from stillhouse.search.records import TrialRecord
from stillhouse.tracking import readable

BEST = "#D55E00"
TEACHER = "#222222"
COLOURS = {"COMPLETE": "#0072B2", "PRUNED": "#9A9A9A", "FAIL": "#CC79A7", "RUNNING": "#E0C000"}
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

    Returns:
        The folder: ``sweep.html`` with ``plotly.min.js``, ``learning-curves.png`` and, where they can be
        drawn, ``pareto-front.png``, ``history.png``, ``importances.png``, ``parallel-coordinates.png`` and
        ``slices.png``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.png"):
        stale.unlink()
    optuna_study = _load(study)
    sections = list(_tables(records, quality, teacher, tested, " ".join(remarks)))
    for drawing in _drawings(optuna_study, records, quality, (teacher or {}).get(quality)):
        figure = Figure(drawing.name, drawing.title, _plot(drawing), _picture(drawing, title))
        write_atomically(folder / f"{figure.name}.png", figure.png)
        sections.append(Section(drawing.title, figures=(figure,)))
    reason = missing_importances(optuna_study)
    if reason:
        sections.append(Section("What decides the quality", text=f"{reason}."))
    write_page(folder / "sweep.html", title, sections)
    return folder


def missing_importances(study: Any) -> str:
    """Say why the importances of hyper-parameters cannot be computed; empty where they can."""
    finished = _finished(study)
    if len(finished) < 2:
        return f"importances need two finished trials, but there are {len(finished)}"
    if all(trial.params == finished[0].params for trial in finished):
        return "importances need a hyper-parameter that differs between the finished trials"
    if len({trial.values[0] for trial in finished}) < 2:
        return "importances need finished trials of different quality, but all of them are equal"
    return ""


def _drawings(
    study: Any, records: Sequence[TrialRecord], quality: str, teacher: float | None
) -> Iterator[_Drawing]:
    """The figures that these trials can fill."""
    from optuna.importance import FanovaImportanceEvaluator

    label, finished = f"{readable(quality)} (dev)", _finished(study)
    pair = len(study.directions) > 1
    target: dict[str, Any] = {"target_name": label}
    if pair:
        target["target"] = _first_value
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
    if not missing_importances(study):
        few = "; few trials: read with care" if len(finished) < 10 else ""
        yield _Drawing(
            "importances",
            "What decides the quality",
            lambda backend: backend.plot_param_importances(
                study, evaluator=FanovaImportanceEvaluator(seed=0), **target
            ),
            inches=(8.5, max(2.8, 1.6 + 0.42 * len(names))),
            height=190 + 34 * len(names),
            axes=(f"share of the variance (fANOVA, {len(finished)} finished trials{few})", ""),
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


def _first_value(trial: Any) -> float:
    return float(trial.values[0])


def _finished(study: Any) -> list[Any]:
    """The trials that Optuna can plot: finished, with a quality that is a number."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [trial for trial in trials if math.isfinite(trial.values[0])]


def _load(path: Path) -> Any:
    """Open the one study of a file, to read."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}", skip_compatibility_check=True)
    return optuna.load_study(study_name=None, storage=storage)
