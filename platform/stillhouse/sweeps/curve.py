"""One method trained at one or several shares of its rows, and the table of a corpus-size curve."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.corpora.tables import open_rows
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.preparation import Embedding, prepare, warn_of_full_bank
from stillhouse.methods import Method
from stillhouse.plan.data import Examples, Recorded, Sampled, Scored
from stillhouse.plan.stage import Stage
from stillhouse.reports.tables import aligned
from stillhouse.training.progress import Evaluation
from stillhouse.training.walk import Where, run


@dataclass(frozen=True)
class Point:
    """A trained student of a curve.

    Attributes:
        fraction: Share of the training rows.
        rows: Rows of each stage by its label.
        folder: Of the last stage.
        metrics: Its dev figures.
        seconds: It took, without the stages before it.
    """

    fraction: float
    rows: dict[str, int]
    folder: str
    metrics: dict[str, float]
    seconds: float


def train_at(
    fractions: Sequence[float],
    method: Method,
    hp: Any,
    wanted: Experiment,
    workspace: Workspace,
    embedding: Embedding,
    where: Where,
    *,
    refresh: bool = False,
) -> list[Point]:
    """Train a method at shares of its rows. The teacher embeds the whole text once; what is finished stays.

    Args:
        fractions: The shares, each in (0, 1].
        method: What plans.
        hp: Its hyper-parameters.
        wanted: The data; its own fraction is replaced.
        workspace: Where everything is found and put.
        embedding: Where the teacher runs.
        where: Where the students train.
        refresh: Read the corpus again.

    Raises:
        BadInput: A stage has fewer rows than its batch at some share; nothing is trained then.
    """
    plans = []
    for place, fraction in enumerate(fractions):
        given = changed(wanted, {"budget.fraction": fraction})
        prepared = prepare(given, workspace, embedding, refresh=refresh and place == 0)
        stage = method.plan(hp, prepared.setting)
        warn_of_full_bank([stage], prepared.setting)
        plans.append((fraction, stage, _checked_rows(workspace, stage, fraction)))
    points = []
    for fraction, stage, rows in plans:
        if len(plans) > 1:
            say(f"fraction {fraction:g}")
        manifest = read_manifest(run(stage, workspace, where=where, on_evaluation=_Teller(stage)))
        folder = str(workspace.path(stage))
        points.append(Point(fraction, rows, folder, manifest["metrics"], manifest["seconds"]))
    return points


def curve_table(points: Sequence[Point]) -> str:
    """A line a share: rows of each stage, and the dev figures."""
    stages = list(points[0].rows)
    figures = list(dict.fromkeys(name for point in points for name in point.metrics))
    cells = [
        [
            f"{point.fraction:g}",
            *(f"{point.rows[label]:,}" for label in stages),
            *(f"{point.metrics[name]:.4f}" if name in point.metrics else "–" for name in figures),
        ]
        for point in points
    ]
    return "\n".join(
        aligned(["fraction", *(f"{label}_rows" for label in stages), *figures], cells, left=set())
    )


class _Teller:
    """Says each evaluation on the screen."""

    def __init__(self, stage: Stage) -> None:
        self._selects = {part.label: part.dev.select for part in stage.chain() if part.dev}

    def __call__(self, evaluation: Evaluation) -> bool:
        quality = self._selects[evaluation.stage]
        say(
            f"  {evaluation.stage}: {evaluation.examples:,} examples, "
            f"{quality} {evaluation.metrics.get(quality, float('nan')):.4f}"
        )
        return False


def _checked_rows(workspace: Workspace, stage: Stage, fraction: float) -> dict[str, int]:
    rows = {part.label: _rows(workspace, part.examples) for part in stage.chain()}
    for part in stage.chain():
        require(
            rows[part.label] >= part.batch_size,
            f"rows of the stage {part.label} >= its batch_size",
            fraction=fraction,
            rows=rows[part.label],
            batch_size=part.batch_size,
            remedy="Give more text, a larger share, or a smaller batch.",
        )
    return rows


def _rows(workspace: Workspace, examples: Examples) -> int:
    return len(next(iter(open_rows(workspace, _there(examples)).values())))


def _there(examples: Examples) -> Examples:
    """The same rows without what is still to be recorded beside them."""
    origin = examples.origin
    if isinstance(origin, Recorded | Scored):
        return _there(origin.rows)
    if isinstance(origin, Sampled):
        rows = _there(origin.rows)
        share = dataclasses.replace(origin, rows=rows)
        return dataclasses.replace(examples, origin=share, values=rows.values)
    return examples
