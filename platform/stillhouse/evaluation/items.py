"""What a figure is made of, item by item, so that two models can be compared on the same items.

A figure is a weighted mean over parts, each a statistic of its items: the queries of a collection, the pairs
of an STS set, the sentences of a task. One part is the usual case; SentEval's *wmean* and a table's average
have several.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stillhouse.evaluation.metrics import Values, divided, spearman_rows

Figures = dict[str, dict[str, float]]
"""Set to figure to value."""

Statistic = Literal["mean", "spearman", "f1"]


@dataclass(frozen=True)
class Part:
    """Some items.

    Attributes:
        values_N: What the model has for each item: a figure (*mean*), a score (*spearman*), a class (*f1*).
        gold_N: What is right for each item; None of *mean*.
        weight: Of this part among those of its figure.
    """

    values_N: Values
    gold_N: Values | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Items:
    """The items of one figure.

    Attributes:
        parts: At least one.
        statistic: What a part's figure is.
        scale: What it is multiplied by, such as 100.
    """

    parts: tuple[Part, ...]
    statistic: Statistic = "mean"
    scale: float = 1.0

    @property
    def count(self) -> int:
        """Items in all."""
        return sum(len(part.values_N) for part in self.parts)

    def figure(self) -> float:
        """The figure itself."""
        figures = [statistic(self.statistic, part.values_N, part.gold_N) for part in self.parts]
        return self.scale * float(np.average(figures, weights=[part.weight for part in self.parts]))


ItemsOf = Mapping[str, Mapping[str, Items]]
"""Set to figure to its items."""


@dataclass(frozen=True)
class Measured:
    """Figures, and the items of those that are made of items."""

    figures: Figures
    items: ItemsOf


def measured(items: ItemsOf) -> Measured:
    """Figures that all are made of items."""
    return Measured(
        {name: {kind: one.figure() for kind, one in each.items()} for name, each in items.items()}, items
    )


def means(values: Mapping[str, npt.ArrayLike], scale: float = 1.0) -> dict[str, Items]:
    """Figures that are plain means over the same items."""
    return {name: Items((Part(np.asarray(each, np.float64)),), scale=scale) for name, each in values.items()}


def average(figures: Iterable[Items]) -> Items:
    """The plain mean of figures, each of which counts as much however many items it has."""
    given = list(figures)
    parts = []
    for items in given:
        total = sum(part.weight for part in items.parts)
        parts += [Part(part.values_N, part.gold_N, part.weight / total) for part in items.parts]
    return Items(tuple(parts), given[0].statistic, given[0].scale)


def statistic(kind: Statistic, values_BN: Values, gold_BN: Values | None) -> Values:
    """The statistic over the last axis; NaN where it is not defined, as of constant scores."""
    if kind == "mean":
        return np.asarray(values_BN.mean(axis=-1))
    assert gold_BN is not None, f"{kind} has gold"
    if kind == "f1":
        found = (values_BN == 1) & (gold_BN == 1)
        either = (values_BN == 1).sum(axis=-1) + (gold_BN == 1).sum(axis=-1)
        return divided(2.0 * found.sum(axis=-1), np.asarray(either, np.float64))
    return spearman_rows(values_BN, gold_BN)
