"""Early-stopping schedulers: one file each, found by file name.

A module has one function, ``rule(full_budget)``, which makes a `Rule`; None means that no trial is stopped.
`stillhouse.search.scheduler` connects a rule to Tune and makes it safe to restart.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from stillhouse.core.modules import load_module, module_names
from stillhouse.values.stage import Stage


class Rule(Protocol):
    """A rule that compares a running trial with the other trials of the study.

    A rule knows trials by their number in the study. After a restart it is given the evaluations of earlier
    processes again, by trial number, and its answers to them are ignored: its state must not depend on the
    order in which trials report.
    """

    def stops(self, number: int, examples: int, value: float) -> bool:
        """Take note of an evaluation, and decide whether the trial is stopped.

        Args:
            number: The trial's number in the study.
            examples: Examples seen; larger than at the trial's previous evaluation.
            value: The objective, finite; larger is better.
        """
        ...


class SchedulerModule(Protocol):
    """The contract of a scheduler's module.

    ``RUNGS`` are the shares of the budget at which a trial may be stopped, and ``CONTINUES`` is the expected
    share of trials that continue past one. Estimates of time read both; without rungs no trial ends early.
    Both are of what a stop can still save (see `stillhouse.methods`, `PRUNABLE_FROM`).
    """

    RUNGS: tuple[float, ...]
    CONTINUES: float

    def rule(self, full_budget: int) -> Rule | None:
        """Make the rule for trials that see ``full_budget`` examples that a stop can save."""
        ...


def known_schedulers() -> list[str]:
    """List the names of all schedulers; nothing is imported."""
    return module_names(__path__)


def load_scheduler(name: str) -> SchedulerModule:
    """Import a scheduler by its name.

    Raises:
        BadInput: Unknown scheduler; the message lists the nearest names.
    """
    scheduler: SchedulerModule = load_module(__name__, known_schedulers(), name, "scheduler")
    return scheduler


def points_of(name: str) -> tuple[float, ...]:
    """The shares of what a stop can save at which a scheduler needs a dev evaluation."""
    points: tuple[float, ...] = getattr(load_scheduler(name), "RUNGS", ())
    return points


def with_points(plan: Stage, shares: Sequence[float], first: str) -> Stage:
    """Give a plan dev evaluations at shares of what a stop can still save.

    ``first`` is the label of the first stage whose evaluations may stop a trial. Where the plan has no such
    stage, it is the first of all.
    """
    stages = list(plan.chain())
    labels = [stage.label for stage in stages]
    offset = sum(stage.budget for stage in stages[: labels.index(first) if first in labels else 0])
    whole = sum(stage.budget for stage in stages) - offset
    return _with_points(plan, [offset + math.ceil(share * whole) for share in shares], first)


def _with_points(stage: Stage, points: Sequence[int], first: str) -> Stage:
    end = stage.examples_in_all
    begin = end - stage.examples_seen
    if stage.start_from is not None and stage.label != first:
        stage = replace(stage, start_from=_with_points(stage.start_from, points, first))
    return replace(stage, evaluate_at=tuple(point - begin for point in points if begin < point <= end))


def unmet(plan: Stage, count: int) -> int:
    """Number of points of a plan that fall on the evaluation of another point, or on the end."""
    met = 0
    for stage in plan.chain():
        steps = {-(-point // stage.batch_size) for point in stage.evaluate_at}
        met += len(steps - {plan.steps} if stage is plan else steps)
    return count - met
