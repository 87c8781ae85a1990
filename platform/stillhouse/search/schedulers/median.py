"""The median stopping rule: Golovin et al., 2017, "Google Vizier", section 3.2.1.

A trial is stopped when its best value so far is below the median of the other trials' running means up to the
same number of examples. It is compared only with trials that have seen as many examples or ran to their end.

The decisions are those of Ray 2.60 (``tune/schedulers/median_stopping_rule.py``); a test compares the two.
Ray's class itself cannot be used here: it asserts that a trial that it stopped never reports again, but here
the first trials continue whatever the rule says; and it may pause a trial, which would need a Tune
checkpoint.
"""

import statistics

RUNGS: tuple[float, ...] = ()
CONTINUES = 1.0
"""No early ends are expected."""
POINTS = (1 / 4, 1 / 2, 3 / 4)
_GRACE = 0.25
"""Share of the budget before which no trial is stopped and no value enters a mean."""
_AT_LEAST = 3
"""Number of other trials that a trial must be compared with."""


def rule(full_budget: int) -> "Median":
    """Make the rule."""
    return Median(full_budget)


class Median:
    """The median stopping rule, by trial number."""

    def __init__(self, full_budget: int) -> None:
        self._grace = max(1, int(full_budget * _GRACE))
        self._curves: dict[int, dict[int, float]] = {}
        self._completed: set[int] = set()

    def stops(self, number: int, examples: int, value: float) -> bool:
        """Return whether the trial's best value is below the median of the others' running means."""
        curve = self._curves.setdefault(number, {})
        curve[examples] = value
        if examples < self._grace:
            return False
        means = self._means_of_others(number, examples)
        return len(means) >= _AT_LEAST and max(curve.values()) < statistics.median(means)

    def completed(self, number: int) -> None:
        """Compare with this trial at every later number of examples, even if its patience ended it early."""
        self._completed.add(number)

    def _means_of_others(self, number: int, examples: int) -> list[float]:
        means = []
        for other, curve in self._curves.items():
            if other != number and (other in self._completed or max(curve) >= examples):
                counted = [value for at, value in curve.items() if self._grace <= at <= examples]
                means += [statistics.fmean(counted)] if counted else []
        return means
