"""The papers' tables and figures of runs, from what MLflow holds, written to a folder and told to MLflow."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_atomically
from stillhouse.core.console import warn
from stillhouse.core.errors import require
from stillhouse.core.identity import fingerprint
from stillhouse.reports.comparison_html import write_comparison
from stillhouse.reports.comparison_text import as_csv, as_markdown, columns
from stillhouse.reports.cost_maps import maps, selecting
from stillhouse.reports.cost_maps_png import draw_map
from stillhouse.reports.entries import entries
from stillhouse.tracking.reading import COMPARISON, Run, read_runs

FORMATS = ("md", "csv", "html")


@dataclass(frozen=True)
class Comparison:
    """What is compared, and how it is written.

    Attributes:
        runs: Ids, names of runs or names of sweeps.
        experiment: MLflow's, in the place of runs.
        output: Folder; None takes one in the workspace.
        formats: Some of `FORMATS`.
        quality: The figure that is drawn, without its split; empty takes what the sweeps selected by.
    """

    runs: tuple[str, ...]
    experiment: str
    output: Path | None
    formats: tuple[str, ...]
    quality: str

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        one = bool(self.runs) != bool(self.experiment)
        require(one, "either runs or --experiment are given", runs=self.runs, experiment=self.experiment)
        known = bool(self.formats) and all(each in FORMATS for each in self.formats)
        require(known, f"--format names some of {', '.join(FORMATS)}", format=",".join(self.formats))

    @property
    def title(self) -> str:
        """What the page is called."""
        return f"Comparison of {self.experiment or ', '.join(self.runs)}"


def compare(wanted: Comparison, root: Path, uri: str) -> dict[str, Any]:
    """Read, write the tables and figures, and tell MLflow.

    Args:
        wanted: What is compared.
        root: The workspace.
        uri: Where MLflow keeps its runs.

    Returns:
        ``folder``, ``files``, ``lines`` and ``quality``.

    Raises:
        BadInput: No such runs, runs without a finished trial or figure, or an unknown figure.
    """
    found = read_runs(uri, experiment=wanted.experiment, runs=wanted.runs)
    lines = entries(found)
    _, figures = columns(lines)
    require(bool(lines and figures), "the runs have figures", runs=len(found))
    quality = selecting(lines, wanted.quality)
    asked = wanted.quality.replace("@", "_at_")
    known = sorted({name.split("/", 1)[1] for name in figures if "/" in name})
    require(not asked or quality == asked, f"--quality is one of {', '.join(known)}", quality=wanted.quality)
    name = fingerprint(sorted(run.id for run in found if run.level != "stage"))
    folder = wanted.output or root / "comparisons" / (wanted.experiment or name)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = maps(lines, quality)
    written = [folder / f"{each.name}.png" for each in drawn]
    for each, path in zip(drawn, written, strict=True):
        draw_map(each, path)
    if "md" in wanted.formats:
        written.append(folder / "comparison.md")
        write_atomically(written[-1], as_markdown(lines, wanted.title).encode())
    if "csv" in wanted.formats:
        written.append(folder / "comparison.csv")
        write_atomically(written[-1], as_csv(lines).encode())
    if "html" in wanted.formats:
        written.append(folder / "comparison.html")
        write_comparison(lines, drawn, wanted.title, written[-1])
    _tell(found, wanted.title, name, written, root, uri)
    return {
        "folder": str(folder),
        "files": [path.name for path in written],
        "lines": len(lines),
        "quality": quality,
    }


def _tell(runs: Sequence[Run], title: str, name: str, written: Sequence[Path], root: Path, uri: str) -> None:
    """A run of its own beside the first of the runs; the same comparison again is the same run."""
    from stillhouse.tracking.mlflow_tracker import MLflowTracker

    journal = root / "comparisons" / ".journals" / name
    journal.mkdir(parents=True, exist_ok=True)
    tracker = MLflowTracker(uri, runs[0].experiment, journal)
    key = (f"comparison-{name}",)
    tracker.run(key, title, parameters={"runs": len(runs)}, tags={COMPARISON: name})
    for path in written:
        tracker.artifact(key, path)
    tracker.finish(key)
    waiting = tracker.close(30.0)
    if waiting:
        warn(waiting)
