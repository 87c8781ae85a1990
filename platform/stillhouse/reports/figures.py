"""The figures of a sweep: learning curves, importances, parallel coordinates, Pareto front."""

import math
from collections.abc import Sequence
from pathlib import Path

from stillhouse.reports.figures_data import importances, quality_of
from stillhouse.reports.figures_html import write_page
from stillhouse.reports.figures_png import draw_curves, draw_front, draw_importances, draw_parallel
from stillhouse.search.records import TrialRecord


def write_figures(
    folder: Path,
    records: Sequence[TrialRecord],
    quality: str,
    *,
    study: Path | None = None,
    teacher: float | None = None,
    title: str = "",
) -> Path:
    """Draw what can be drawn; ``sweep.html`` says why something cannot.

    Args:
        folder: Where the files go; those of an earlier call are replaced.
        records: All trials.
        quality: The dev figure that was maximised.
        study: The Optuna study of the trials, for the importances.
        teacher: The teacher's figure, for the learning curves.
        title: Put before the figures' own titles, such as the sweep's name.

    Returns:
        The folder: ``sweep.html``, ``learning-curves.png`` and, where they can be drawn, ``importances.png``,
        ``parallel-coordinates.png`` and ``pareto-front.png``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    named = f"{title}: " if title else ""
    shares = importances(records, study=study)
    finished = sum(record.state == "COMPLETE" for record in records)
    measured = [record for record in records if not math.isnan(quality_of(record))]
    for stale in folder.glob("*.png"):
        stale.unlink()
    draw_curves(records, quality, teacher, f"{named}Learning curves", folder / "learning-curves.png")
    if not isinstance(shares, str):
        draw_importances(shares, finished, f"{named}What decides the quality", folder / "importances.png")
    if measured:
        draw_parallel(records, quality, f"{named}Trials", folder / "parallel-coordinates.png")
    if any(len(record.values or ()) > 1 for record in records):
        draw_front(records, quality, f"{named}Pareto front", folder / "pareto-front.png")
    write_page(records, quality, teacher, shares, title or "Sweep", folder / "sweep.html")
    return folder
