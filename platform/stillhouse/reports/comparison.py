"""A comparison of MLflow's runs: tables and figures, written to a folder and logged to MLflow."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import check_name, check_no_url, write_atomically
from stillhouse.core.console import warn
from stillhouse.core.errors import is_refused, require
from stillhouse.core.identity import fingerprint
from stillhouse.reports.comparison_tables import (
    as_csv,
    as_lines,
    as_markdown,
    cells,
    columns,
    label,
    legend,
    shared,
    short_text,
)
from stillhouse.reports.cost_maps import draw_map, maps, selecting
from stillhouse.reports.entries import SPLITS, Entry, entries
from stillhouse.reports.pages import Figure, Section, Table, write_page
from stillhouse.reports.row_table import Rows
from stillhouse.tracking.mlflow_tracker import MLflowTracker
from stillhouse.tracking.reading import COMPARISON, Run, read_runs, side_by_side

FORMATS = ("md", "csv", "html")


@dataclass(frozen=True)
class Comparison:
    """The runs to compare, and the formats to write.

    Attributes:
        runs: Ids, names of runs or names of sweeps.
        experiment: Name of an MLflow experiment, instead of runs.
        output: Folder; None takes one in the workspace.
        formats: Some of `FORMATS`.
        quality: Figure that is drawn and sorted by, without its split; empty takes what the sweeps selected
            by.
    """

    runs: tuple[str, ...]
    experiment: str
    output: Path | None
    formats: tuple[str, ...]
    quality: str

    def __post_init__(self) -> None:
        """Refuse contradictory or unknown options."""
        one = bool(self.runs) != bool(self.experiment)
        require(one, "either runs or --experiment must be given", runs=self.runs, experiment=self.experiment)
        if self.experiment:
            check_name(self.experiment, "an experiment")
        known = bool(self.formats) and all(each in FORMATS for each in self.formats)
        require(known, f"--format must name some of {', '.join(FORMATS)}", format=",".join(self.formats))

    @property
    def title(self) -> str:
        """Title of the page."""
        return f"Comparison of {self.experiment or ', '.join(self.runs)}"


def compare(comparison: Comparison, root: Path, uri: str) -> dict[str, Any]:
    """Read the runs, write tables and figures, and log them to MLflow.

    Returns:
        ``folder``, ``files``, ``lines``, ``quality``, the ``table`` for a terminal, and the ``page`` of
        MLflow with several sweeps side by side.

    Raises:
        BadInput: No such runs, runs without a finished trial or figure, or an unknown figure.
    """
    runs = read_runs(uri, experiment=comparison.experiment, runs=comparison.runs)
    rows = entries(runs)
    _, figures = columns(rows)
    require(bool(rows and figures), "the runs must have figures", runs=len(runs))
    quality = selecting(rows, comparison.quality)
    chosen = comparison.quality.replace("@", "_at_")
    known = sorted({name.split("/", 1)[1] for name in figures if "/" in name})
    require(
        not chosen or quality == chosen,
        f"--quality must be one of {', '.join(known)}",
        quality=comparison.quality,
    )
    name = fingerprint(sorted(run.id for run in runs if run.level != "stage"))
    folder = comparison.output or root / "comparisons" / (comparison.experiment or name)
    check_no_url(folder, "--output must name a folder, not a URL", "output")
    folder.mkdir(parents=True, exist_ok=True)
    files = _write(comparison, rows, quality, folder)
    try:
        _log(runs, comparison.title, name, files, root, uri)
    except OSError as error:
        if not is_refused(error):
            raise
        warn(f"{root} cannot be written ({error.strerror}), so the comparison is not recorded in MLflow.")
    return {
        "folder": str(folder),
        "files": [path.name for path in files],
        "lines": len(rows),
        "quality": quality,
        "table": as_lines(rows, quality),
        "page": side_by_side(uri, runs),
    }


def compared(runs: Sequence[str], experiment: str, uri: str) -> Rows:
    """Read the runs as a table, and write nothing.

    Raises:
        BadInput: There are no such runs.
    """
    asked = Comparison(tuple(runs), experiment, None, FORMATS, "")
    rows = entries(read_runs(uri, experiment=asked.experiment, runs=asked.runs))
    differ, figures = columns(rows)
    return Rows(
        {
            "name": row.name,
            **{name: row.parameters.get(name) for name in differ if row.trained},
            **{label(name): row.figures[name] for name in figures if name in row.figures},
            "ended": row.state,
        }
        for row in rows
    )


def _write(comparison: Comparison, rows: Sequence[Entry], quality: str, folder: Path) -> list[Path]:
    files: list[Path] = []
    if "md" in comparison.formats:
        files.append(folder / "comparison.md")
        write_atomically(files[-1], as_markdown(rows, comparison.title).encode())
    if "csv" in comparison.formats:
        files.append(folder / "comparison.csv")
        write_atomically(files[-1], as_csv(rows).encode())
    if "html" in comparison.formats:
        files.append(folder / "comparison.html")
        drawn = [draw_map(each) for each in maps(rows, quality)]
        write_page(files[-1], comparison.title, list(_sections(rows, quality, drawn)))
    return files


def _sections(rows: Sequence[Entry], quality: str, drawn: Sequence[Figure]) -> Iterator[Section]:
    """One table per split and one of what differs, all sorted by quality; then the figures."""
    header, texts = cells(rows)
    differ, figures = columns(rows)
    first = 1 + len(differ)
    place = {name: first + at for at, name in enumerate(figures)}
    costs = [at for name, at in place.items() if "/" not in name]
    for split in SPLITS:
        selects = f"{split}/{quality}"
        own = [name for name in place if name.startswith(f"{split}/")]
        own.sort(key=lambda name: name != selects)
        measured = [row for row in rows if any(name in row.figures for name in own)]
        if measured:
            shown = [0, *(place[name] for name in own), *costs, len(header) - 1]
            order = sorted(measured, key=lambda row: _descending(row, selects))
            yield Section(
                f"Quality ({split}) and cost, sorted by {label(selects)}",
                text=legend(order),
                tables=(_table(rows, order, header, texts, shown),),
            )
    if differ:
        trained = sorted(
            (row for row in rows if row.trained), key=lambda row: _descending(row, f"dev/{quality}")
        )
        yield Section("What differs", tables=(_table(rows, trained, header, texts, list(range(first))),))
    same = shared(rows)
    if same:
        text = ", ".join(f"{name} {short_text(value)}" for name, value in same.items())
        yield Section("What all runs share", text=text)
    yield from (Section(figure.title, figures=(figure,)) for figure in drawn)


def _descending(row: Entry, figure: str) -> float:
    value = row.figures.get(figure, math.nan)
    return math.inf if math.isnan(value) else -value


def _table(
    rows: Sequence[Entry],
    order: Sequence[Entry],
    header: Sequence[str],
    texts: Sequence[Sequence[str]],
    shown: Sequence[int],
) -> Table:
    """Some rows and columns of the whole table; text to the left, numbers to the right."""
    place = {id(row): at for at, row in enumerate(rows)}
    return Table(
        [header[at] for at in shown],
        [[texts[place[id(row)]][at] for at in shown] for row in order],
        left={0, shown.index(len(header) - 1)} if len(header) - 1 in shown else {0},
        marked={at for at, row in enumerate(order) if row.kind == "best"},
    )


def _log(runs: Sequence[Run], title: str, name: str, files: Sequence[Path], root: Path, uri: str) -> None:
    """Log the files to a separate run in the experiment of the first run.

    The same comparison made again is logged to the same run.
    """
    journal = root / "comparisons" / ".journals" / name
    journal.mkdir(parents=True, exist_ok=True)
    tracker = MLflowTracker(uri, runs[0].experiment, journal)
    key = (f"comparison-{name}",)
    tracker.run(key, title, parameters={"runs": len(runs)}, tags={COMPARISON: name})
    for path in files:
        tracker.artifact(key, path)
    tracker.finish(key)
    waiting = tracker.close(30.0)
    if waiting:
        warn(waiting)
