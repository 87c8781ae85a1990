"""Asynchronous Hyperband: Li et al., 2017, arXiv:1603.06560, over the ASHA of arXiv:1810.05934 (section 3.2).

Trials are spread over brackets of successive halving that differ in their first rung, so that a method whose
early evaluations mislead is not judged by them alone:

======= ==================== =====
bracket rungs, of the budget share
======= ==================== =====
0       1/9, 1/3             9/17
1       1/3                  5/17
2       none                 3/17
======= ==================== =====

The shares are Hyperband's bracket sizes. Ray 2.60 draws a trial's bracket from NumPy's global generator,
which a restarted sweep cannot repeat; here the bracket follows from the trial's number, such that every first
few trials are spread close to the shares. Ray's synchronous ``HyperBandScheduler`` is not offered: it pauses
trials, and a paused trial of Tune keeps its place among the concurrent ones (with a single place the search
would stand still) and needs a Tune checkpoint, which our trials do not make.
"""

import math

from stillhouse.search.schedulers.asha import SuccessiveHalving

RUNGS: tuple[float, ...] = ()
CONTINUES = 1.0
"""No early ends are expected."""
POINTS = (1 / 9, 1 / 3)
"""The rungs of all brackets."""
_BRACKETS, _REDUCTION = 3, 3


def rule(full_budget: int) -> "Hyperband":
    """Make the rule."""
    return Hyperband(full_budget)


class Hyperband:
    """Brackets of successive halving; each trial is compared only with trials of its own bracket.

    The last bracket stops no trial.
    """

    def __init__(self, full_budget: int) -> None:
        graces = [_REDUCTION ** (index + 1 - _BRACKETS) for index in range(_BRACKETS - 1)]
        self._brackets = [SuccessiveHalving(full_budget, grace, _REDUCTION) for grace in graces]
        halvings = range(_BRACKETS - 1, -1, -1)
        self._sizes = [math.ceil(_BRACKETS / (s + 1) * _REDUCTION**s) for s in halvings]

    def bracket_of(self, number: int) -> int:
        """The bracket of a trial: at each number, the one that is furthest behind its share."""
        total, counts, chosen = sum(self._sizes), [0] * len(self._sizes), 0
        for count in range(1, number + 2):
            lags = [size * count / total - had for size, had in zip(self._sizes, counts, strict=True)]
            chosen = lags.index(max(lags))
            counts[chosen] += 1
        return chosen

    def stops(self, number: int, examples: int, value: float) -> bool:
        """Return whether the trial's bracket stops it."""
        bracket = self.bracket_of(number)
        return bracket < len(self._brackets) and self._brackets[bracket].stops(number, examples, value)
