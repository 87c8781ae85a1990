"""Stages that no searched value changes: built once, where trials run, before the trials start."""

from pathlib import Path
from typing import Any

from stillhouse.artifacts import Workspace
from stillhouse.console import say
from stillhouse.errors import require
from stillhouse.plan import Stage
from stillhouse.sweeps.room import Need, call
from stillhouse.sweeps.space import Categorical, Space
from stillhouse.sweeps.trial import Context
from stillhouse.training.progress import Diverged
from stillhouse.training.run import run


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
    return stages


def _build(stage: Stage, context: Context) -> str:
    """Train a stage; why it diverged, or nothing."""
    try:
        run(stage, Workspace(Path(context.root)), where=context.where)
    except Diverged as diverged:
        return str(diverged)
    return ""


def shared_stages(context: Context, space: Space) -> list[Stage]:
    """The stages of the plan that stay the same whatever searched value changes."""
    start = some_point(space)
    stages = list(context.plan(start).chain())
    for name, domain in space.domains.items():
        for value in _values(domain)[1:]:
            varied = {stage.fingerprint for stage in context.plan({**start, name: value}).chain()}
            stages = [stage for stage in stages if stage.fingerprint in varied]
    return stages


def some_point(space: Space) -> dict[str, Any]:
    """Hyper-parameters of the space, whichever."""
    return {**space.fixed, **{name: _values(domain)[0] for name, domain in space.domains.items()}}


def first_point(space: Space) -> dict[str, Any]:
    """The published hyper-parameters where the space names them, else some."""
    return {**some_point(space), **(space.first or {})}


def _values(domain: Any) -> tuple[Any, ...]:
    return domain.choices if isinstance(domain, Categorical) else (domain.low, domain.high)
