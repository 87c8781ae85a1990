"""The items that a figure is made of, so that two models can be compared on the same items.

A figure is a weighted mean over parts, and the figure of a part is a statistic of its items: the queries of a
collection, the pairs of an STS set, the sentences of a task. Most figures have one part; SentEval's *wmean*
and the average of a table have several.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from stillhouse.core.types import Encoder
from stillhouse.evaluation.metrics import Values, divided, spearman_rows

Figures = dict[str, dict[str, float]]
"""Set to figure to value."""

Statistic = Literal["mean", "spearman", "f1"]


@dataclass(frozen=True)
class Part:
    """Items that share one statistic.

    Attributes:
        values_N: The model's result for each item: a figure (*mean*), a score (*spearman*), a class (*f1*).
        gold_N: The correct result for each item; None for *mean*.
        weight: Weight of this part in its figure.
    """

    values_N: Values
    gold_N: Values | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Items:
    """The items of one figure."""

    parts: tuple[Part, ...]
    statistic: Statistic = "mean"
    scale: float = 1.0

    @property
    def count(self) -> int:
        """Number of items in all parts."""
        return sum(len(part.values_N) for part in self.parts)

    def figure(self) -> float:
        """Compute the figure."""
        figures = [statistic(self.statistic, part.values_N, part.gold_N) for part in self.parts]
        return self.scale * float(np.average(figures, weights=[part.weight for part in self.parts]))


def as_data(items: Items) -> dict[str, Any]:
    """Describe items as plain data, which `items_from` reads again."""
    parts = [
        {
            "values": part.values_N.tolist(),
            "gold": None if part.gold_N is None else part.gold_N.tolist(),
            "weight": part.weight,
        }
        for part in items.parts
    ]
    return {"parts": parts, "statistic": items.statistic, "scale": items.scale}


def items_from(data: Mapping[str, Any]) -> Items:
    """Read what `as_data` made of items."""
    parts = [
        Part(
            np.asarray(part["values"], np.float64),
            None if part["gold"] is None else np.asarray(part["gold"], np.float64),
            part["weight"],
        )
        for part in data["parts"]
    ]
    return Items(tuple(parts), data["statistic"], data["scale"])


FiguresAndItems = tuple[dict[str, float], dict[str, Items]]
"""Figures by name, and the items of those that are made of items."""


@runtime_checkable
class ItemisedEvaluator(Protocol):
    """An evaluator whose figures can be taken apart into items."""

    def itemised(self, model: Encoder) -> FiguresAndItems:
        """Measure a model, and also return the items."""


ItemsOf = Mapping[str, Mapping[str, Items]]
"""Set to figure to its items."""


@dataclass(frozen=True)
class Measured:
    """Figures by set, and the items of those that are made of items."""

    figures: Figures
    items: ItemsOf


def measured(items: ItemsOf) -> Measured:
    """Compute figures that are all made of items."""
    return Measured(
        {name: {kind: one.figure() for kind, one in each.items()} for name, each in items.items()}, items
    )


def means(values: Mapping[str, npt.ArrayLike], scale: float = 1.0) -> dict[str, Items]:
    """Make the items of figures that are plain means over the same items."""
    return {name: Items((Part(np.asarray(each, np.float64)),), scale=scale) for name, each in values.items()}


def average(figures: Iterable[Items]) -> Items:
    """Make the items of the plain mean of figures; each counts the same, whatever its number of items."""
    given = list(figures)
    parts = []
    for items in given:
        total = sum(part.weight for part in items.parts)
        parts += [Part(part.values_N, part.gold_N, part.weight / total) for part in items.parts]
    return Items(tuple(parts), given[0].statistic, given[0].scale)


def statistic(kind: Statistic, values_BN: Values, gold_BN: Values | None) -> Values:
    """Compute a statistic over the last axis; NaN where it is undefined, as for constant scores."""
    if kind == "mean":
        return np.asarray(values_BN.mean(axis=-1))
    assert gold_BN is not None, f"{kind} has gold"
    if kind == "f1":
        found = (values_BN == 1) & (gold_BN == 1)
        either = (values_BN == 1).sum(axis=-1) + (gold_BN == 1).sum(axis=-1)
        return divided(2.0 * found.sum(axis=-1), np.asarray(either, np.float64))
    return spearman_rows(values_BN, gold_BN)
