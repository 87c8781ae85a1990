"""The page of a sweep, whose figures are those of `optuna.visualization`.

Only axis titles, the styles of the learning curves and the intervals of the importances are our own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """Write the page of a sweep, ``sweep.html``, and return its folder.

    The page says why the importances cannot be drawn; None as ``shares`` computes them. ``tested`` is the
    final comparison, as `comparison_table` takes it, with ``remarks`` below its heading; ``findings`` follow
    the tables. ``facts`` stand below the title, before the date of the search, and ``links``, further pages
    by their titles, are relative to the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optuna_study = load_study(study)
    shares = importances(optuna_study) if shares is None else shares
    sections = [*_tables(records, quality, teacher, tested, "\n".join(remarks)), *findings]
    sections += _drawings(optuna_study, records, quality, (teacher or {}).get(quality), shares)
    if shares.missing:
        sections.append(Section(_IMPORTANCES, text=importance_note(shares)))
    write_page(folder / "sweep.html", title, sections, [*facts, *_date(optuna_study)], links)
    return folder


def _drawn(name: str, title: str, plot: Any, text: str = "", tables: Sequence[Table] = ()) -> Section:
    return Section(title, text, tables, (Figure(name, title, plot),))


def _drawings(
    study: Any, records: Sequence[TrialRecord], quality: str, teacher: float | None, shares: Importances
) -> Iterator[Section]:
    """The figures that these trials can fill."""
    from optuna import visualization

    label, finished = f"{readable(quality)} (dev)", finished_trials(study)
    pair = len(study.directions) > 1
    target: dict[str, Any] = {"target_name": label}
    if pair:
        target["target"] = first_value
    curves = _learning_curves(visualization.plot_intermediate_values(study), records, label, teacher)
    yield _drawn("learning-curves", "Learning curves", curves)
    if not finished:
        return
    if pair:
        front = visualization.plot_pareto_front(study, target_names=[label, second_name(records)])
        yield _drawn("pareto-front", "Pareto front", _styled(front))
    history = visualization.plot_optimization_history(study, **target)
    yield _drawn("history", "Best trial so far", _styled(history), _POINTS)
    if shares.shares:
        bars = visualization.plot_param_importances(study, evaluator=_known(shares), **target)
        table = Table(*importance_cells(shares), left={0, 3})
        plot = _with_intervals(bars, shares)
        yield _drawn("importances", _IMPORTANCES, plot, importance_note(shares), (table,))
    lines = _styled(visualization.plot_parallel_coordinate(study, **target))
    lines.update_traces(line_width=2, opacity=0.9, selector={"mode": "lines"})
    text = f"{_POINTS} The darker its line, the better it is."
    yield _drawn("parallel-coordinates", "Trials as parallel coordinates", lines, text)
    names = sorted({name for trial in finished for name in trial.params})
    for start in range(0, len(names), _IN_A_ROW):
        row = names[start : start + _IN_A_ROW]
        slices = _styled(visualization.plot_slice(study, params=row, **target), height=330)
        yield _drawn(
            "slices" if start == 0 else f"slices-{start // _IN_A_ROW + 1}",
            f"Quality by hyper-parameter: {', '.join(row)}",
            slices,
            f"{_POINTS} The darker its point, the later it began.",
        )


def _styled(figure: Any, height: int = 470) -> Any:
    """Give Optuna's figure the style of the page, and its height in pixels."""
    figure.update_layout(title=None, template="plotly_white", margin={"t": 40}, height=height, width=None)
    return figure.update_xaxes(exponentformat="e")


def _learning_curves(figure: Any, records: Sequence[TrialRecord], label: str, teacher: float | None) -> Any:
    """Colour the curves by how their trials ended, and add those of the refits, which the study lacks."""
    _styled(figure).update_layout(xaxis_title="examples seen", yaxis_title=label, yaxis_automargin=True)
    refits = _refit_curves(records)
    for refit, curve in refits.items():
        figure.add_scatter(x=[*curve], y=[*curve.values()], mode="lines+markers", name=refit.label)
    if refits:
        figure.update_xaxes(type="log", tickvals=_ROUND, ticktext=[f"{each:,}" for each in _ROUND])
    styles = {**_curves(records), **{style.label: style for style in refits}}
    labels: set[str] = set()
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
    if teacher is not None:
        words = f"teacher {teacher:.4f}"
        figure.add_hline(teacher, line_dash="dot", line_color=TEACHER, annotation_text=words)
    return figure


def _with_intervals(figure: Any, shares: Importances) -> Any:
    """Draw the intervals over Optuna's bars."""
    across = f"share of the variance (fANOVA, {shares.trials} finished trials) with 95 % interval"
    _styled(figure, 190 + 34 * len(shares.shares))
    figure.update_layout(xaxis_title=across, yaxis_title="", yaxis_automargin=True)
    (bars,) = figure.data
    below, above = error_bars(shares, bars.y)
    bars.update(error_x={"type": "data", "symmetric": False, "array": above, "arrayminus": below}, text=None)
    return figure.add_vline(shares.equal_share, line_dash="dot", line_color=TEACHER, annotation_text=_NOISE)


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
