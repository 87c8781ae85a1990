"""Stages and teacher recordings that all trials share: built once, before the trials, where trials run."""

from collections.abc import Iterator
from typing import Any

from stillhouse.cluster.resources import Need, call, cluster_device, teacher_actors
from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.search.space import Space
from stillhouse.search.trial import Context
from stillhouse.training.follower import PlanFollower
from stillhouse.training.inputs import get
from stillhouse.training.progress import Diverged
from stillhouse.training.walk import run
from stillhouse.values.data import Examples, Recorded, Scored
from stillhouse.values.stage import Stage


def build_shared(context: Context, space: Space, need: Need) -> list[Stage]:
    """Build the stages that all trials have in common, as tasks of the cluster, and return them.

    Raises:
        BadInput: A stage diverged, as it would in every trial.
    """
    workspace = context.workspace
    stages = shared_stages(context, space)
    for stage in stages:
        if not workspace.finished(stage):
            say(f"  building {stage.label}, which all trials share")
            with PlanFollower(workspace) as follower:
                follower.follow(stage.label, stage)
                reason = call(build_stage, stage, context, need=need)
            require(
                not reason,
                f"the stage {stage.label}, which all trials share, must not diverge",
                reason=reason,
                remedy="Change the hyper-parameters that the space fixes.",
            )
    for examples in shared_recordings(context, space):
        if not workspace.finished(examples):
            say(f"  recording {examples.label}, which all trials share")
            device = cluster_device(context.where.device)
            actors = teacher_actors(device)
            get([examples], workspace, device=device, threads=context.where.threads, actors=actors)
    return stages


def build_stage(stage: Stage, context: Context) -> str:
    """Train a stage and those before it; return why it diverged, or an empty string."""
    try:
        run(stage, context.workspace, where=context.where)
    except Diverged as diverged:
        return str(diverged)
    return ""


def shared_stages(context: Context, space: Space) -> list[Stage]:
    """List the stages of the plan that no searched value changes."""
    stages = list(context.plan(space.any_point).chain())
    for plan in _varied(context, space):
        kept = {stage.fingerprint for stage in plan.chain()}
        stages = [stage for stage in stages if stage.fingerprint in kept]
    return stages


def shared_recordings(context: Context, space: Space) -> list[Examples]:
    """List the examples with a recording that no searched value changes, in the order of the plan."""
    plan = context.plan(space.any_point)
    shared = [part for part in plan.examples.sources() if isinstance(part.origin, Recorded | Scored)]
    for plan in _varied(context, space):
        kept = {part.fingerprint for part in plan.examples.sources()}
        shared = [part for part in shared if part.fingerprint in kept]
    return shared


def _varied(context: Context, space: Space) -> Iterator[Stage]:
    """Yield plans with every searched value that the method plans."""
    plans = (context.planned(point) for point in space.probes(context.refusal))
    yield from (plan for plan in plans if plan is not None)


def first_point(space: Space) -> dict[str, Any]:
    """The published hyper-parameters if the space names them, else any point."""
    return {**space.any_point, **(space.first or {})}
