"""Asynchronous Hyperband: Li et al., 2017, arXiv:1603.06560, over the ASHA of arXiv:1810.05934 (section 3.2).

Trials are spread over brackets of successive halving that differ in their first rung, so that a method whose
early evaluations mislead is not judged by them alone. With the defaults:

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

from stillhouse.core.errors import require
from stillhouse.search.schedulers.asha import SuccessiveHalving

RUNGS: tuple[float, ...] = ()
CONTINUES = 1.0
"""No early ends are expected."""
POINTS = (1 / 9, 1 / 3)
"""The rungs of all brackets."""


def rule(full_budget: int, *, brackets: int = 3, reduction_factor: int = 3) -> "Hyperband":
    """Make the rule; the first bracket's first rung is at ``reduction_factor ** (1 - brackets)``."""
    return Hyperband(full_budget, brackets, reduction_factor)


class Hyperband:
    """Brackets of successive halving; each trial is compared only with trials of its own bracket.

    Args:
        full_budget: Examples of a trial that runs to its end, over all its stages.
        brackets: Number of brackets; the last one stops no trial.
        reduction_factor: One trial in this many continues past a rung.

    Raises:
        BadInput: A value is out of range.
    """

    def __init__(self, full_budget: int, brackets: int, reduction_factor: int) -> None:
        require(brackets >= 2, "brackets >= 2", brackets=brackets)
        graces = [reduction_factor ** (index + 1 - brackets) for index in range(brackets - 1)]
        self._brackets = [SuccessiveHalving(full_budget, grace, reduction_factor) for grace in graces]
        halvings = range(brackets - 1, -1, -1)
        self._sizes = [math.ceil(brackets / (s + 1) * reduction_factor**s) for s in halvings]

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

    def completed(self, number: int) -> None:
        """Nothing to note: rungs hold reported evaluations only."""
