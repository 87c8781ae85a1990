"""Run a plan: walk its stages, skip the finished ones, build their missing inputs, and train the rest."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from stillhouse.cluster.leases import making
from stillhouse.cluster.preemption import Preempted, leaving
from stillhouse.cluster.running import ray_runs, require_usable_gpu
from stillhouse.core.artifacts import Workspace, read_manifest, remove_leftovers
from stillhouse.core.console import warn
from stillhouse.core.devices import has_device, on_device, resolve_device, usable_device
from stillhouse.core.errors import BadInput
from stillhouse.core.notes import has_note
from stillhouse.training.facts import FACTS, write_facts
from stillhouse.training.fit import OnEvaluation
from stillhouse.training.local import fit_here, prepare
from stillhouse.training.progress import Evaluation, Stopped
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.where import Where
from stillhouse.training.worker import fit_with_workers
from stillhouse.values.stage import Stage


def run(
    stage: Stage,
    workspace: Workspace,
    *,
    where: Where,
    on_evaluation: Callable[[Evaluation], bool] | None = None,
) -> Path:
    """Run a plan to its end.

    A finished stage is not run again: its curve is replayed. If two processes need the same stage, one runs
    it and the other waits; if the first is stopped, the second continues from its checkpoint.

    Args:
        stage: The last stage of the plan.
        workspace: Holds all inputs and results.
        where: Device, threads, workers.
        on_evaluation: Called with every evaluation of the stages that have a dev suite, ``examples`` counted
            from the first stage on; returning True requests an early end.

    Returns:
        The folder of the last stage.

    Raises:
        Diverged: A loss is not finite, or a student collapsed.
        Stopped: ``on_evaluation`` requested it.
        Interrupted: A signal ended the run.
    """
    if where.threads:
        torch.set_num_threads(where.threads)
    before = 0
    for part in stage.chain():
        _run_one(part, workspace, where, _shifted(on_evaluation, before, last=part is stage))
        before += part.examples_seen
    return workspace.path(stage)


def _run_one(stage: Stage, workspace: Workspace, where: Where, on_evaluation: OnEvaluation | None) -> None:
    folder = workspace.place(stage)
    if not workspace.finished(stage):
        with making(workspace, stage):
            if not workspace.finished(stage):
                remove_leftovers(folder)
                _train(stage, workspace, where, on_evaluation)
                return
    _mend_facts(stage, workspace, where)
    _replay(stage, folder, on_evaluation)


def _fit_alone(
    stage: Stage, workspace: Workspace, where: Where, device: str, on_evaluation: OnEvaluation | None
) -> None:
    """Train in this process, which makes way with a checkpoint if its node is about to go."""
    with leaving() as soon, on_device(device):
        try:
            stop = soon.is_set
            fit_here(stage, workspace, where, device=device, on_evaluation=on_evaluation, stop_requested=stop)
        except Interrupted as interrupted:
            if not soon.is_set():
                raise
            raise Preempted(f"the node is about to go: {interrupted}") from None


def _mend_facts(stage: Stage, workspace: Workspace, where: Where) -> None:
    """Write again the facts of a finished stage that were damaged or removed; nothing is trained for it."""
    folder = workspace.place(stage)
    if not has_note(folder / FACTS):
        try:
            write_facts(stage, workspace, where.search)
        except BadInput as error:  # Its inputs may be gone.
            warn(f"{folder.name} has no {FACTS}, so its model card will lack some lines. {error}")


def _train(stage: Stage, workspace: Workspace, where: Where, on_evaluation: OnEvaluation | None) -> None:
    device = resolve_device(where.device)
    require_usable_gpu(device)
    threads = where.threads or torch.get_num_threads()
    if where.workers > 1 and ray_runs():  # This process only waits, and has reserved no device.
        prepare(stage, workspace, device=device, threads=threads, actors=where.workers)
    else:
        prepare(stage, workspace, device=usable_device(device), threads=threads)
    if where.workers == 1 and has_device(device):
        _fit_alone(stage, workspace, where, device, on_evaluation)
    else:
        fit_with_workers(stage, workspace, where, device=device, on_evaluation=on_evaluation)


def _replay(stage: Stage, folder: Path, on_evaluation: OnEvaluation | None) -> None:
    curve = [point for point in read_manifest(folder)["evaluations"] if point["metrics"]]
    for point in curve:
        evaluation = Evaluation(stage=stage.label, **point, final=point is curve[-1])
        if on_evaluation is not None and on_evaluation(evaluation):
            raise Stopped(f"{stage.label} was stopped early, after {evaluation.examples} examples.")


def _shifted(on_evaluation: OnEvaluation | None, before: int, *, last: bool) -> OnEvaluation | None:
    """Count examples from the first stage on; after the last evaluation there is nothing left to stop."""
    if on_evaluation is None:
        return None

    def shifted(evaluation: Evaluation) -> bool:
        final = evaluation.final and last
        seen = before + evaluation.examples
        return on_evaluation(replace(evaluation, examples=seen, final=final)) and not final

    return shifted
