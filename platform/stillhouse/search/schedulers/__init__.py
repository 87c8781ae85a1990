"""Early-stopping schedulers: one file each, found by file name.

A module has one function, ``rule(full_budget)``, which makes a `Rule`; None means that no trial is stopped.
`stillhouse.search.scheduler` connects a rule to Tune and makes it safe to restart.
"""

from typing import Protocol

from stillhouse.core.modules import load_module, module_names


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

    def completed(self, number: int) -> None:
        """Take note that a trial ran to its end, with however many examples."""
        ...


class SchedulerModule(Protocol):
    """The contract of a scheduler's module.

    ``RUNGS`` are the shares of the budget at which a trial may be stopped, and ``CONTINUES`` is the expected
    share of trials that continue past one. Estimates of time read both; without rungs no trial ends early.
    """

    RUNGS: tuple[float, ...]
    CONTINUES: float

    def rule(self, full_budget: int) -> Rule | None:
        """Make the rule for trials that see ``full_budget`` examples over all their stages."""
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
