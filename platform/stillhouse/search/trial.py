"""A trial: trains the stages of one set of hyper-parameters, and reports the evaluations."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.cluster.preemption import Preempted
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import Hindered, mistake_in, out_of_memory, refusing
from stillhouse.core.remotes import Remote
from stillhouse.experiments.teacher_weights import weighted
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.search.options import SweepOptions
from stillhouse.search.records import no_memory_for
from stillhouse.search.schedulers import points_of, with_points
from stillhouse.training.progress import Diverged, Evaluation
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

Report = Callable[[dict[str, Any]], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Context:
    """Everything that the trials of a sweep share.

    Attributes:
        method: Name of the method.
        preset: Preset of the hyper-parameters that are neither searched nor fixed.
        setting: Everything but the hyper-parameters.
        root: Folder of the workspace.
        where: Device, threads and workers.
        quality: The dev metric that is maximised.
        remote: Where artifacts are kept for all nodes; None if ``root`` is seen by all of them.
        points: Shares of what a stop can save at which the scheduler needs a dev evaluation.
    """

    method: str
    preset: str
    setting: Setting
    root: str
    where: Where
    quality: str
    remote: Remote | None = None
    points: tuple[float, ...] = ()

    @property
    def workspace(self) -> Workspace:
        """The workspace, on whichever node asks."""
        return Workspace(Path(self.root), self.remote)

    def plan(self, values: dict[str, Any]) -> Stage:
        """Plan the last stage for some hyper-parameters."""
        method = load_method(self.method)
        hp = hyper_parameters(method, values, self.preset)
        plan = method.plan(hp, weighted(self.setting, values))
        return with_points(plan, self.points, method.PRUNABLE_FROM) if self.points else plan

    def planned(self, values: Mapping[str, Any]) -> Stage | None:
        """Plan the last stage; None where the method refuses the hyper-parameters."""
        return None if self.refusal(values) else self.plan(dict(values))

    def refusal(self, values: Mapping[str, Any]) -> str:
        """Why the method refuses some hyper-parameters; empty if it plans them."""
        return refusing(self.plan)(values)


def context_of(options: SweepOptions, setting: Setting, workspace: Workspace, where: Where) -> Context:
    """Gather what all trials share; with a second objective no evaluation stops any."""
    return Context(
        method=options.method,
        preset=options.preset,
        setting=setting,
        root=str(workspace.root),
        where=where,
        quality=setting.dev.select,
        remote=workspace.remote,
        points=points_of(options.scheduler) if len(options.objectives) == 1 else (),
    )


def run_trial(config: dict[str, Any], context: Context) -> None:
    """Run a trial as a Tune function: report each evaluation, then the result.

    A workspace that cannot serve the trial is reported too, and a node that is about to go, since the trial
    itself has not failed. The trial's own error is reported as its reason: Tune would try it again, and only
    lost processes and nodes are worth that.
    """
    from ray import tune

    values = config["hyper_parameters"]

    def report_end(**why: str) -> None:
        tune.report({**why, "examples_seen": 0, "finished": False})

    try:
        if reason := attempted(lambda: follow(values, context, tune.report), values):
            report_end(reason=reason)
    except Preempted as preempted:
        report_end(preempted=str(preempted))
        raise
    except Hindered as hindered:
        report_end(hindered=str(hindered))


def attempted(work: Callable[[], str | None], values: Mapping[str, Any]) -> str:
    """Do work with some hyper-parameters; return why it failed, as it may do itself, or an empty string.

    Raises:
        Hindered: The workspace cannot serve the work.
        Preempted: The node is about to go.
        RayError: A process or a node was lost.
    """
    from ray.exceptions import RayError

    try:
        return work() or ""
    except (Preempted, RayError):
        raise
    except Exception as error:
        mistake = mistake_in(error)
        if out_of_memory(error):
            return no_memory_for(values)
        if isinstance(mistake, Hindered):
            raise mistake from error
        log.warning("failed with %s", values, exc_info=True)
        said = str(error).strip().splitlines()
        return str(mistake) if mistake else f"{type(error).__name__}: {said[0] if said else ''}".rstrip(": ")


def reason_of(task: Any) -> str:
    """Wait for a task that returns why its work failed; that its process was lost is a reason, too."""
    import ray

    try:
        return str(ray.get(task))
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as lost:
        return f"{type(lost).__name__}: {str(lost).strip().splitlines()[0]}"


def follow(values: dict[str, Any], context: Context, report: Report) -> None:
    """Run the plan of some hyper-parameters.

    A finished stage replays its evaluations, so a trial that was interrupted, or that shares a stage with
    another, reports the same curve as one that was not. The last report says ``finished``; the report of a
    trial that diverged gives the ``reason``.
    """
    stage = context.plan(values)
    prunable_from = load_method(context.method).PRUNABLE_FROM
    labels = [s.label for s in stage.chain()]
    first = labels.index(prunable_from) if prunable_from in labels else 0
    budget = stage.examples_in_all
    started, last = time.monotonic(), {context.quality: math.nan}

    def result(evaluation: Evaluation | None, **more: Any) -> dict[str, Any]:
        return {
            context.quality: last.get(context.quality, math.nan),
            "examples_seen": evaluation.examples if evaluation else 0,
            "metrics": dict(last),
            "seconds": time.monotonic() - started,
            "finished": False,
            **more,
        }

    def listen(evaluation: Evaluation) -> bool:
        last.clear()
        last.update(evaluation.metrics)
        if labels.index(evaluation.stage) >= first:
            report(result(evaluation))
        return False

    try:
        folder = run(stage, context.workspace, where=context.where, on_evaluation=listen)
    except Diverged as diverged:
        last[context.quality] = math.nan
        report(result(None, reason=str(diverged)))
        return
    report(final_report(folder, context.quality, budget, time.monotonic() - started))


def final_report(folder: Path, quality: str, budget: int, seconds: float) -> dict[str, Any]:
    """Make the last report of a trial that ran to its end: the metrics of the checkpoint that was kept."""
    manifest = read_manifest(folder)
    metrics = manifest["metrics"]
    return {
        quality: metrics.get(quality, math.nan),
        "examples_seen": budget,
        "metrics": metrics,
        "seconds": seconds,
        "finished": True,
        "size_mb": (folder / "student.safetensors").stat().st_size / 1e6,
        "folder": str(folder),
        "weights_sha256": manifest["weights_sha256"],
    }
