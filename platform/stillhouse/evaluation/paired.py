"""Comparison of two models on the same items: is a difference larger than the choice of items explains?

* Interval: 95 %, percentiles of the differences over samples of the items drawn with replacement, the same
  items for both models (paired bootstrap; Efron & Tibshirani 1993, ch. 13).
* p: two-sided; how often a difference at least as large occurs if the two results of each item are swapped at
  random (randomisation test; Noreen 1989). All 2^N swaps are tried if they are fewer than the samples. For a
  rank correlation the ranks are swapped, not the scores, because the scores of two models share no scale.
* Holm (1979) corrects p for the number of figures that are compared.

The parts of a figure, such as the sets of an average, are resampled independently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from stillhouse.core.errors import BadInput
from stillhouse.evaluation.items import Items, Part, Statistic, statistic
from stillhouse.evaluation.metrics import Values

K = TypeVar("K")
RESAMPLES = {"mean": 10_000, "f1": 10_000, "spearman": 2_000}
_AT_ONCE = 1_000_000
_SAME = 1e-12


@dataclass(frozen=True)
class Paired:
    """One figure of two models.

    Attributes:
        model: Figure of the model.
        other: Figure of the other model.
        difference: ``model - other``.
        share: ``model / other``, such as the share of the teacher's figure that is kept; None unless both are
            positive and made of items.
        low: Lower end of the interval of the difference; None if the figure has no items.
        high: Upper end of the interval.
        p: p-value of the difference; None if the figure has no items.
        p_holm: p after Holm's correction.
        items: Number of items.
        resamples: Number of samples drawn.
    """

    model: float
    other: float
    difference: float
    share: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    items: int = 0
    resamples: int = 0


def compare_items(model: Items, other: Items, *, resamples: int = 0, seed: int = 0) -> Paired:
    """Compare one figure of two models; ``resamples`` is the number of samples, and 0 takes `RESAMPLES`.

    Raises:
        BadInput: If the items differ.
    """
    same = len(model.parts) == len(other.parts) and model.statistic == other.statistic
    if not same or not all(map(_same_items, model.parts, other.parts)):
        raise BadInput("two models can only be compared on the same items, but theirs differ.")
    own, others = model.figure(), other.figure()
    share = own / others if own > 0 and others > 0 else None
    count = resamples or RESAMPLES[model.statistic]
    found = Paired(own, others, own - others, share, items=model.count, resamples=count)
    few = min(len(part.values_N) for part in model.parts) < 2
    if few or not np.isfinite(found.difference):
        return found
    shares = model.scale * np.array([part.weight for part in model.parts])
    shares = shares / sum(part.weight for part in model.parts)
    draw = np.random.default_rng(seed)
    drawn, chance, exact = np.zeros(count), np.zeros(count), False
    for part, other_part, share in zip(model.parts, other.parts, shares, strict=True):
        samples = _Samples(model.statistic, part, other_part, count)
        drawn += share * samples.bootstrap(draw)
        by_chance = samples.randomised(draw)
        exact = len(model.parts) == 1 and len(by_chance) != count
        chance = share * by_chance if exact else chance + share * _of_length(by_chance, count, draw)
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    as_large = int((np.abs(chance) >= abs(found.difference) - _SAME * model.scale).sum())
    p = as_large / len(chance) if exact else (as_large + 1) / (count + 1)
    return replace(found, low=float(low), high=float(high), p=float(p))


def compare_figures(
    model: Mapping[str, Mapping[str, float]],
    other: Mapping[str, Mapping[str, float]],
    items: tuple[Mapping[str, Mapping[str, Items]], Mapping[str, Mapping[str, Items]]],
    *,
    resamples: int = 0,
    seed: int = 0,
) -> dict[str, dict[str, Paired]]:
    """Compare all figures that both models have, set by set; those without items get no interval and no p.

    ``items`` are those of the model and of the other model; for ``resamples`` see `compare_items`.
    """
    found: dict[str, dict[str, Paired]] = {}
    for name, figures in model.items():
        found[name] = {}
        for kind, own in figures.items():
            if kind not in other.get(name, {}):
                continue
            others = other[name][kind]
            mine, theirs = (each.get(name, {}).get(kind) for each in items)
            if mine is not None and theirs is not None:
                found[name][kind] = compare_items(mine, theirs, resamples=resamples, seed=seed)
            else:
                found[name][kind] = Paired(own, others, own - others)
    whole = corrected({(name, kind): one for name, each in found.items() for kind, one in each.items()})
    return {name: {kind: whole[name, kind] for kind in each} for name, each in found.items()}


def corrected(found: Mapping[K, Paired]) -> dict[K, Paired]:
    """The same comparisons with the p-values of all of them after Holm's correction."""
    places = {place: one.p for place, one in found.items() if one.p is not None}
    after = dict(zip(places, holm(list(places.values())), strict=True))
    return {
        place: replace(one, p_holm=after[place]) if place in after else one for place, one in found.items()
    }


def holm(p: Sequence[float]) -> list[float]:
    """Apply Holm's step-down correction: the smallest of N p-values times N, the next times N - 1, …."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, np.float64)[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(value) for value in corrected]


class _Samples:
    """Differences of a part's statistic, over samples of its items and over swaps of its results."""

    def __init__(self, kind: Statistic, part: Part, other_part: Part, count: int) -> None:
        self.kind, self.gold, self.count = kind, part.gold_N, count
        self.values = (part.values_N, other_part.values_N)
        self.batch = max(1, _AT_ONCE // len(part.values_N))

    def bootstrap(self, draw: np.random.Generator) -> Values:
        data = self._data(self.values)
        found = stats.bootstrap(
            data if self.gold is None else (*data, self.gold),
            self._difference,
            paired=True,
            n_resamples=self.count,
            batch=self.batch,
            method="percentile",
            rng=draw,
        )
        return np.asarray(found.bootstrap_distribution, np.float64)

    def randomised(self, draw: np.random.Generator) -> Values:
        data = self._data(self.values)
        if self.kind == "spearman":
            data = tuple(stats.rankdata(values) for values in data)
        found = stats.permutation_test(
            data,
            self._difference,
            permutation_type="samples",
            vectorized=True,
            n_resamples=self.count,
            batch=self.batch,
            rng=draw,
        )
        return np.asarray(found.null_distribution, np.float64)

    def _data(self, values: tuple[Values, ...]) -> tuple[Values, ...]:
        # The mean of differences is the difference of means, so one sample of half the size suffices.
        return (values[0] - values[1],) if self.kind == "mean" else values

    def _difference(self, *data: Any, axis: int = -1) -> Values:
        if self.kind == "mean":
            return np.asarray(data[0].mean(axis=axis))
        a_BN, b_BN, *resampled = (np.moveaxis(each, axis, -1) for each in data)
        gold = resampled[0] if resampled else self.gold
        return statistic(self.kind, a_BN, gold) - statistic(self.kind, b_BN, gold)


def _same_items(a: Part, b: Part) -> bool:
    if len(a.values_N) != len(b.values_N) or a.weight != b.weight or (a.gold_N is None) != (b.gold_N is None):
        return False
    return a.gold_N is None or b.gold_N is None or bool((a.gold_N == b.gold_N).all())


def _of_length(chance: Values, count: int, draw: np.random.Generator) -> Values:
    """Bring to the length of the other parts: where scipy enumerated all swaps, draw from them."""
    return chance if len(chance) == count else draw.choice(chance, count)
