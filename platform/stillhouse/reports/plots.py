"""The page of a sweep, whose figures are those of `optuna.visualization`.

Only axis titles, the styles of the learning curves and the intervals of the importances are our own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from stillhouse.reports.sweep_tables import comparison_cells, ranking_cells, title_of
from stillhouse.reports.trials import STATES, ranked, second_name
from stillhouse.search.records import TrialRecord, best_record
from stillhouse.tracking import readable

BEST = "#D55E00"
TEACHER = "#222222"
REFIT = "#009E73"
COLOURS = {"COMPLETE": "#0072B2", "PRUNED": "#9A9A9A", "FAIL": "#CC79A7", "RUNNING": "#E0C000"}
_IMPORTANCES = "What decides the quality"
_NOISE = "pure noise, on average"
_IN_A_ROW = 4
"""Panels beside each other, which all fit on a screen."""
_ROUND = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]
"""Numbers of examples on an axis of learning curves."""
_NONE: Mapping[str, str] = {}
_POINTS = "Only trials that ran to their end are shown, not those that were stopped early, and no refits."
_ORDER = (
    "* and the colour mark the best student, which was exported. What ran to its end comes first. Grey rows "
    "did not: theirs is the last figure before they ended, which may be higher, since figures fall again too."
)


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
        name: Its anchor in the page.
        title: Heading of the figure.
        plot: Optuna's figure.
        text: What stands below the heading.
        height: Height in the page, in pixels.
        axes: Titles of both axes; None keeps Optuna's.
        curves: Styles of the curves by Optuna's names of them.
        refits: Learning curves that the study does not have: examples seen to the figure, by their style.
        teacher: Level of a horizontal line.
        bold: Whether plotly's lines are drawn stronger than Optuna draws them.
        shares: Importances, whose intervals are drawn over Optuna's bars.
    """

    name: str
    title: str
    plot: Any
    text: str = ""
    height: int = 470
    axes: tuple[str, str] | None = None
    curves: Mapping[str, _Curve] = field(default_factory=dict)
    refits: Mapping[_Curve, Mapping[int, float]] = field(default_factory=dict)
    teacher: float | None = None
    bold: bool = False
    shares: Importances | None = None

    @property
    def styles(self) -> dict[str, _Curve]:
        """Styles of all curves by their names."""
        return {**self.curves, **{style.label: style for style in self.refits}}


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
    facts: Sequence[str] = (),
    links: Mapping[str, str] = _NONE,
    shares: Importances | None = None,
    findings: Sequence[Section] = (),
) -> Path:
    """Write the page of a sweep, ``sweep.html``. It says why the importances cannot be drawn.

    Args:
        folder: Where the page goes; that of an earlier call is replaced.
        records: All trials and refits.
        quality: The dev figure that was maximised.
        study: The SQLite file of the trials' Optuna study.
        teacher: The teacher's dev figures, for the learning curves and the share kept.
        tested: The final comparison, as `tables.comparison_table` takes it.
        title: Title of the page, such as the sweep's name.
        remarks: Sentences below the final comparison's heading.
        facts: What the page says below its title, before the date of the search.
        links: Further pages by their titles, relative to the folder.
        shares: The importances of the hyper-parameters; None computes them.
        findings: Further sections, which follow the tables.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optuna_study = load_study(study)
    shares = importances(optuna_study) if shares is None else shares
    sections = [*_tables(records, quality, teacher, tested, " ".join(remarks)), *findings]
    for drawing in _drawings(optuna_study, records, quality, (teacher or {}).get(quality), shares):
        sections.append(_section(drawing, Figure(drawing.name, drawing.title, _plot(drawing))))
    if shares.missing:
        sections.append(Section(_IMPORTANCES, text=importance_note(shares)))
    write_page(folder / "sweep.html", title, sections, [*facts, *_date(optuna_study)], links)
    return folder


def _section(drawing: _Drawing, figure: Figure) -> Section:
    """Put a figure below its heading, importances with their table."""
    if drawing.shares is None:
        return Section(drawing.title, drawing.text, figures=(figure,))
    table = Table(*importance_cells(drawing.shares), left={0, 3})
    return Section(drawing.title, importance_note(drawing.shares), (table,), (figure,))


def _drawings(
    study: Any, records: Sequence[TrialRecord], quality: str, teacher: float | None, shares: Importances
) -> Iterator[_Drawing]:
    """The figures that these trials can fill."""
    from optuna import visualization

    label, finished = f"{readable(quality)} (dev)", finished_trials(study)
    pair = len(study.directions) > 1
    target: dict[str, Any] = {"target_name": label}
    if pair:
        target["target"] = first_value
    names = {name for trial in finished for name in trial.params}
    yield _Drawing(
        "learning-curves",
        "Learning curves",
        visualization.plot_intermediate_values(study),
        axes=("examples seen", label),
        curves=_curves(records),
        refits=_refit_curves(records),
        teacher=teacher,
    )
    if not finished:
        return
    if pair:
        yield _Drawing(
            "pareto-front",
            "Pareto front",
            visualization.plot_pareto_front(study, target_names=[label, second_name(records)]),
        )
    yield _Drawing(
        "history",
        "Best trial so far",
        visualization.plot_optimization_history(study, **target),
        text=_POINTS,
    )
    if shares.shares:
        known = _known(shares)
        yield _Drawing(
            "importances",
            _IMPORTANCES,
            visualization.plot_param_importances(study, evaluator=known, **target),
            height=190 + 34 * len(shares.shares),
            axes=(f"share of the variance (fANOVA, {shares.trials} finished trials) with 95 % interval", ""),
            shares=shares,
        )
    yield _Drawing(
        "parallel-coordinates",
        "Trials as parallel coordinates",
        visualization.plot_parallel_coordinate(study, **target),
        text=f"{_POINTS} The darker its line, the better it is.",
        bold=True,
    )
    for start in range(0, len(names), _IN_A_ROW):
        row = sorted(names)[start : start + _IN_A_ROW]
        yield _Drawing(
            "slices" if start == 0 else f"slices-{start // _IN_A_ROW + 1}",
            f"Quality by hyper-parameter: {', '.join(row)}",
            visualization.plot_slice(study, params=row, **target),
            text=f"{_POINTS} The darker its point, the later it began.",
            height=330,
        )


def _plot(drawing: _Drawing) -> Any:
    """Give Optuna's figure its axes and styles."""
    figure = drawing.plot
    figure.update_layout(
        title=None, template="plotly_white", margin={"t": 40}, height=drawing.height, width=None
    )
    figure.update_xaxes(exponentformat="e")
    if drawing.axes is not None:
        x, y = drawing.axes
        figure.update_layout(xaxis_title=x, yaxis_title=y, yaxis_automargin=True)
    labels: set[str] = set()
    for refit, curve in drawing.refits.items():
        figure.add_scatter(x=[*curve], y=[*curve.values()], mode="lines+markers", name=refit.label)
    if drawing.refits:
        figure.update_xaxes(type="log", tickvals=_ROUND, ticktext=[f"{each:,}" for each in _ROUND])
    styles = drawing.styles
    for trace in figure.data:
        style = styles.get(trace.name)
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


def _known(shares: Importances) -> Any:
    """Make an evaluator that gives Optuna's figures the importances that are known already."""
    from optuna.importance import BaseImportanceEvaluator

    class Known(BaseImportanceEvaluator):  # type: ignore[misc]
        def evaluate(
            self, study: Any, params: list[str] | None = None, *, target: Any = None
        ) -> dict[str, float]:
            return {each.name: each.share for each in shares.shares}

    return Known()


def _curves(records: Sequence[TrialRecord]) -> dict[str, _Curve]:
    """Colour each curve by how its trial ended, and highlight the best one."""
    best = best_record(records)

    def style(record: TrialRecord) -> _Curve:
        if record is best:
            return _Curve(f"best student: {record.title}", BEST, 3.0)
        if best is not None and best.refit and record.number == best.number:
            return _Curve(f"{record.title}, which was refitted", BEST, 1.3)
        return _Curve(STATES[record.state], COLOURS[record.state], 1.3)

    return {f"Trial{record.number}": style(record) for record in records if not record.refit}


def _refit_curves(records: Sequence[TrialRecord]) -> dict[_Curve, Mapping[int, float]]:
    """The learning curves of the refits, the best student's highlighted."""
    best = best_record(records)
    return {
        _Curve(f"best student: {record.title}", BEST, 3.0)
        if record is best
        else _Curve(record.title, REFIT, 1.3): record.curve
        for record in records
        if record.refit
    }


def _date(study: Any) -> list[str]:
    """The day on which the last trial ended."""
    ended = [trial.datetime_complete for trial in study.trials if trial.datetime_complete]
    return [f"searched until {max(ended):%Y-%m-%d %H:%M}"] if ended else []


def _tables(
    records: Sequence[TrialRecord],
    quality: str,
    teacher: Mapping[str, float] | None,
    tested: Mapping[str, Mapping[str, Any]] | None,
    remarks: str,
) -> Iterator[Section]:
    """The final comparison, and the trials sorted by the figure that selects."""
    if tested:
        header, cells = comparison_cells(tested)
        best = title_of("student", tested) if "student" in tested else ""
        marked = {place for place, row in enumerate(cells) if row[0] == best}
        yield Section("Test split", text=remarks, tables=(Table(header, cells, left={0, 2}, marked=marked),))
    rows, best_row = ranked(records), best_record(records)
    if rows:
        header, cells = ranking_cells(rows, quality, teacher)
        yield Section(
            f"Trials by {readable(quality)} (dev)",
            text=_ORDER if best_row else "",
            tables=(
                Table(
                    header,
                    cells,
                    left={0, len(header) - 1},
                    marked={place for place, record in enumerate(rows) if record is best_row},
                    dimmed={place for place, record in enumerate(rows) if record.state != "COMPLETE"},
                ),
            ),
        )
