"""ASHA, asynchronous successive halving: Li et al., 2018, arXiv:1810.05934.

The decisions are those of Ray 2.60 (``tune/schedulers/async_hyperband.py``):

* A rung keeps the value that a trial had at its first report at or past the rung. The trial is stopped if
  that value is below the ``1 - 1/reduction_factor`` quantile of the values that came before. The first trial
  to reach a rung always continues.
* With ``stop_last_trials=True`` (Ray's default) a report at ``max_t`` would be answered with STOP, which ends
  a trial before its last report, the one that says ``finished``. It is off here.
"""

from types import SimpleNamespace

from ray.tune.schedulers import ASHAScheduler

GRACE, REDUCTION = 0.25, 4
RUNGS = (GRACE,)
"""Shares of the budget at which a trial may be stopped.

A second rung at 3/4 would cost every trial another dev evaluation, to save a quarter of some.
"""
CONTINUES = 1 / REDUCTION
"""Share of the trials that continue past a rung."""


def rule(full_budget: int) -> "SuccessiveHalving":
    """Make the rule."""
    return SuccessiveHalving(full_budget)


class SuccessiveHalving:
    """Ray's ASHA with one bracket and one rung, by trial number.

    Args:
        full_budget: Examples of a trial that runs to its end, over all its stages.
    """

    def __init__(self, full_budget: int) -> None:
        self._added: set[int] = set()
        self._ray = ASHAScheduler(
            time_attr="examples",
            metric="value",
            mode="max",
            max_t=full_budget,
            grace_period=max(1, int(full_budget * GRACE)),
            reduction_factor=REDUCTION,
            stop_last_trials=False,
        )

    def stops(self, number: int, examples: int, value: float) -> bool:
        """Return whether the trial is below the cut-off of the rung that it has just reached."""
        trial = SimpleNamespace(trial_id=f"trial-{number}")
        if number not in self._added:
            self._added.add(number)
            self._ray.on_trial_add(None, trial)
        decision = self._ray.on_trial_result(None, trial, {"examples": examples, "value": value})
        return bool(decision == ASHAScheduler.STOP)
