"""Training a method on one or several fractions of its rows, and the table of a corpus-size curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import doing, say, show, tell, timed_job, warn
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.preparation import Preparation
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import Method, kinds_read
from stillhouse.preflight.examination import at_start
from stillhouse.preflight.finding import print_concerns
from stillhouse.preflight.limits import full_bank
from stillhouse.preflight.planned import texts_of
from stillhouse.reports.layout import table_lines
from stillhouse.search.experiment_file import Summary
from stillhouse.sweeps.ahead import ahead_of_training, training_left
from stillhouse.sweeps.checks import check_rows, passes, warn_of_few_steps
from stillhouse.training.follower import PlanFollower
from stillhouse.training.held_out import HELDOUT_LOSS
from stillhouse.training.progress import Evaluation
from stillhouse.training.term_gradients import shares_of
from stillhouse.training.token_job import build_tokens_on_cluster
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Teacher
from stillhouse.values.stage import Stage


@dataclass(frozen=True)
class Point:
    """A trained student of a curve.

    Attributes:
        fraction: Fraction of the training rows.
        rows: Number of rows of each stage, by label.
        folder: Folder of the last stage.
        metrics: Dev metrics of the student that the last stage handed over, as `evaluate` measures them.
        seconds: Duration of the last stage.
        gradient_shares: Share of each term in the gradient of the first steps, by stage; only stages with
            several terms.
        before: Dev metrics of the stages before the last one that were evaluated, by label.
        start: Dev metrics of the student before training; empty where they are not known.
    """

    fraction: float
    rows: dict[str, int]
    folder: str
    metrics: dict[str, float]
    seconds: float
    gradient_shares: dict[str, dict[str, float]] = field(default_factory=dict)
    before: dict[str, dict[str, float]] = field(default_factory=dict)
    start: dict[str, float] = field(default_factory=dict)


def train_at(
    fractions: Sequence[float],
    method: Method,
    hp: Any,
    experiment: Experiment,
    workspace: Workspace,
    embedding: Embedding,
    where: Where,
    *,
    refresh: bool = False,
    teacher: Teacher | None = None,
) -> list[Point]:
    """Train a method on fractions of its rows, each in (0, 1], which replace the experiment's own.

    The teacher embeds the whole text once, if a stage reads that. If ``teacher`` is None, it is found first.

    Raises:
        BadInput: With some fraction a stage has fewer rows than its batch size; nothing is trained then.
    """
    plans = []
    teacher = teacher or experiment.teacher.finder.resolve()
    print_concerns(at_start(method, hp, experiment, workspace, teacher, device=embedding.device))
    kinds = kinds_read(method, hp, experiment, experiment.of(teacher).sketch())
    for place, fraction in enumerate(fractions):
        given = changed(experiment, {"budget.fraction": fraction})
        again = refresh and place == 0
        with doing("preparing the corpus and the teacher"):
            data = Preparation(given, workspace, embedding, again, kinds, teacher)
            prepared = data.finish(method.plan(hp, data.setting))
        stage = method.plan(hp, prepared.setting)
        print_concerns(full_bank([stage], texts_of(prepared.setting)))
        if place == 0:
            warn_of_few_steps(method, hp, prepared.setting)
        rows = check_rows(workspace, stage, fraction)
        say(passes(stage, rows))
        plans.append((fraction, stage, rows))
    stages = [stage for _, stage, _ in plans]
    cores = float((where.threads or torch.get_num_threads()) * where.workers)
    say(ahead_of_training(stages, workspace, cores))
    with timed_job() as clock:
        clock.left = lambda: training_left(stages, workspace, cores)
        return [_trained(plan, workspace, where, several=len(plans) > 1) for plan in plans]


def _trained(
    plan: tuple[float, Stage, dict[str, int]], workspace: Workspace, where: Where, *, several: bool
) -> Point:
    """Train the student of one fraction."""
    fraction, stage, rows = plan
    if several:
        say(f"fraction {fraction:g}")
    with PlanFollower(workspace) as follower:
        follower.follow(stage.label, stage)
        printer = _Printer(stage, follower)
        build_tokens_on_cluster(stage, workspace)
        manifest = read_manifest(run(stage, workspace, where=where, on_evaluation=printer))
    metrics, start = manifest["metrics"], manifest.get("start", {})
    _say_progress(stage, start, metrics)
    folder = str(workspace.path(stage))
    shares = shares_of(stage, workspace)
    earlier = {
        part.label: read_manifest(workspace.path(part))["metrics"]
        for part in stage.chain()
        if part is not stage and part.dev is not None
    }
    return Point(fraction, rows, folder, metrics, manifest["seconds"], shares, earlier, start)


def curve_table(points: Sequence[Point]) -> str:
    """Format one line per fraction: the rows of each stage and the dev metrics."""
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
        table_lines(["fraction", *(f"{label}_rows" for label in stages), *figures], cells, set())
    )


def summary_rows(points: Mapping[str, Point], summary: Sequence[Summary]) -> dict[str, dict[str, float]]:
    """Compute the lines of a summary whose variants have all been trained."""
    metrics = {name: point.metrics for name, point in points.items()}
    return {line.name: line.figures(metrics) for line in summary if set(line.variants) <= set(metrics)}


def variants_table(points: Mapping[str, Point], summary: Mapping[str, Mapping[str, float]]) -> str:
    """Format one line per variant of an experiment file: dev metrics, and seconds of its last stage.

    The metrics of earlier stages follow those of the last, as ``STAGE:FIGURE``. The lines of a summary follow
    the variants.
    """
    named = {name: point.metrics | _before(point) for name, point in points.items()}
    last = dict.fromkeys(figure for point in points.values() for figure in point.metrics)
    figures = list(last | dict.fromkeys(figure for metrics in named.values() for figure in metrics))
    cells = [
        [
            name,
            *(f"{metrics[figure]:.4f}" if figure in metrics else "–" for figure in figures),
            f"{points[name].seconds:.0f}" if name in points else "–",
        ]
        for name, metrics in {**named, **summary}.items()
    ]
    return "\n".join(table_lines(["variant", *figures, "seconds"], cells))


def _before(point: Point) -> dict[str, float]:
    return {
        f"{label}:{figure}": value
        for label, metrics in point.before.items()
        for figure, value in metrics.items()
    }


def _say_progress(stage: Stage, start: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Say what training has changed; a student that got worse is announced."""
    select = stage.dev.select if stage.dev else ""
    if select not in now:
        return
    before = f"{start[select]:.4f} before training, " if select in start else ""
    show(f"  {select}: {before}{now[select]:.4f} now")
    if now[select] < start.get(select, -math.inf):
        warn(
            f"worse than before training: {select} {now[select]:.4f}, and {start[select]:.4f} without any. "
            "Train for longer, or with a smaller learning rate."
        )


class _Printer:
    """Prints each evaluation, and notes that it did."""

    def __init__(self, stage: Stage, follower: PlanFollower) -> None:
        self._title, self._follower = stage.label, follower
        self._selects = {part.label: part.dev.select for part in stage.chain() if part.dev}

    def __call__(self, evaluation: Evaluation) -> bool:
        quality = self._selects[evaluation.stage]
        loss = evaluation.metrics.get(HELDOUT_LOSS)
        tell(
            f"{evaluation.stage}: {evaluation.examples:,} examples, "
            f"{quality} {evaluation.metrics.get(quality, float('nan')):.4f}"
            + (f", {HELDOUT_LOSS} {loss:.4f}" if loss is not None else "")
        )
        self._follower.heard(self._title)
        return False
