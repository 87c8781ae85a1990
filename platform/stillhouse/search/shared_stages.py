"""Stages and teachers' recordings that all trials share: built once, where trials run, before them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillhouse.cluster.resources import Need, call
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.devices import resolve_device, usable_device
from stillhouse.core.errors import require
from stillhouse.plan.data import Examples, Recorded, Scored
from stillhouse.plan.stage import Stage
from stillhouse.search.space import Categorical, Space
from stillhouse.search.trial import Context
from stillhouse.training.progress import Diverged
from stillhouse.training.walk import run


def build_shared(context: Context, space: Space, need: Need) -> list[Stage]:
    """Build the stages that all trials have in common, as tasks of the cluster, and return them.

    Raises:
        BadInput: One diverged, and with it every trial would.
    """
    workspace = Workspace(Path(context.root))
    stages = shared_stages(context, space)
    for stage in stages:
        if not workspace.finished(stage):
            say(f"  building {stage.label}, which all trials share")
            reason = call(_build, stage, context, need=need)
            require(
                not reason,
                f"{stage.label}, which all trials share, trains",
                reason=reason,
                remedy="Change the hyper-parameters that the space fixes.",
            )
    for examples in shared_recordings(context, space):
        if not workspace.finished(examples):
            say(f"  recording {examples.label}, which all trials share")
            call(_record, examples, context, need=need)
    return stages


def _record(examples: Examples, context: Context) -> None:
    """Ask the teacher for every example."""
    from stillhouse.training.local import build_examples

    device = usable_device(resolve_device(context.where.device))
    build_examples(Workspace(Path(context.root)), examples, device=device)


def _build(stage: Stage, context: Context) -> str:
    """Train a stage; why it diverged, or nothing."""
    try:
        run(stage, Workspace(Path(context.root)), where=context.where)
    except Diverged as diverged:
        return str(diverged)
    return ""


def shared_stages(context: Context, space: Space) -> list[Stage]:
    """The stages of the plan that stay the same whatever searched value changes."""
    stages = list(context.plan(some_point(space)).chain())
    for plan in _varied(context, space):
        kept = {stage.fingerprint for stage in plan.chain()}
        stages = [stage for stage in stages if stage.fingerprint in kept]
    return stages


def shared_recordings(context: Context, space: Space) -> list[Examples]:
    """Examples with a recording that stay the same whatever searched value changes; first ones first."""
    plan = context.plan(some_point(space))
    found = [part for part in plan.examples.sources() if isinstance(part.origin, Recorded | Scored)]
    for plan in _varied(context, space):
        kept = {part.fingerprint for part in plan.examples.sources()}
        found = [part for part in found if part.fingerprint in kept]
    return found


def _varied(context: Context, space: Space) -> Iterator[Stage]:
    """Plans in which one searched value is another."""
    start = some_point(space)
    for name, domain in space.domains.items():
        for value in _values(domain)[1:]:
            yield context.plan({**start, name: value})


def some_point(space: Space) -> dict[str, Any]:
    """Hyper-parameters of the space, whichever."""
    return {**space.fixed, **{name: _values(domain)[0] for name, domain in space.domains.items()}}


def first_point(space: Space) -> dict[str, Any]:
    """The published hyper-parameters where the space names them, else some."""
    return {**some_point(space), **(space.first or {})}


def _values(domain: Any) -> tuple[Any, ...]:
    return domain.choices if isinstance(domain, Categorical) else (domain.low, domain.high)
