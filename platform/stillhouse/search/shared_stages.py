"""Stages and teacher recordings that all trials share: built once, before the trials, where trials run."""

from collections.abc import Iterator
from typing import Any

from stillhouse.cluster.resources import Need, call
from stillhouse.core.console import say
from stillhouse.core.devices import resolve_device, usable_device
from stillhouse.core.errors import require
from stillhouse.search.space import Categorical, Space
from stillhouse.search.trial import Context
from stillhouse.training.follower import PlanFollower
from stillhouse.training.local import build_examples
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
            call(_record, examples, context, need=need)
    return stages


def _record(examples: Examples, context: Context) -> None:
    """Record the teacher's output for every example."""
    device = usable_device(resolve_device(context.where.device))
    build_examples(context.workspace, examples, device=device)


def build_stage(stage: Stage, context: Context) -> str:
    """Train a stage and those before it; return why it diverged, or an empty string."""
    try:
        run(stage, context.workspace, where=context.where)
    except Diverged as diverged:
        return str(diverged)
    return ""


def shared_stages(context: Context, space: Space) -> list[Stage]:
    """List the stages of the plan that no searched value changes."""
    stages = list(context.plan(some_point(space)).chain())
    for plan in _varied(context, space):
        kept = {stage.fingerprint for stage in plan.chain()}
        stages = [stage for stage in stages if stage.fingerprint in kept]
    return stages


def shared_recordings(context: Context, space: Space) -> list[Examples]:
    """List the examples with a recording that no searched value changes, in the order of the plan."""
    plan = context.plan(some_point(space))
    shared = [part for part in plan.examples.sources() if isinstance(part.origin, Recorded | Scored)]
    for plan in _varied(context, space):
        kept = {part.fingerprint for part in plan.examples.sources()}
        shared = [part for part in shared if part.fingerprint in kept]
    return shared


def _varied(context: Context, space: Space) -> Iterator[Stage]:
    """Yield plans that differ from `some_point`'s in one searched value."""
    start = some_point(space)
    for name, domain in space.domains.items():
        for value in ends_of(domain)[1:]:
            yield context.plan({**start, name: value})


def some_point(space: Space) -> dict[str, Any]:
    """Any point of the space, with the fixed values."""
    return {**space.fixed, **{name: ends_of(domain)[0] for name, domain in space.domains.items()}}


def first_point(space: Space) -> dict[str, Any]:
    """The published hyper-parameters if the space names them, else any point."""
    return {**some_point(space), **(space.first or {})}


def ends_of(domain: Any) -> tuple[Any, ...]:
    """Return the choices of a domain, or the ends of its range."""
    return domain.choices if isinstance(domain, Categorical) else (domain.low, domain.high)
