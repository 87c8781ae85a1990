"""Is the best student better than the baseline, the untrained student and its trial on the locked test split?

`evaluation.paired` decides, on the same items for both models: *better* and *worse* are differences whose
whole 95 % interval is on one side of zero.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillhouse.evaluation.items import items_from
from stillhouse.evaluation.paired import Paired, compare_items, corrected

RIVALS = ("baseline", "untrained")
"""The models that the best student must not be worse than, to be registered."""
BETTER, WORSE, NOT_APART = "better", "worse", "not told apart"


@dataclass(frozen=True)
class Verdict:
    """The best student beside the models that it is compared with, by the figure that selected it.

    Attributes:
        figure: The test figure; empty if the test split has none of that name.
        against: Model to its comparison with the best student.
        titles: Model to its name in tables.
        rows: The two rows that are compared to say whether the method is better than its baseline.
    """

    figure: str
    against: Mapping[str, Paired] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[str, str] = ("student", "baseline")

    @property
    def worse_than(self) -> list[str]:
        """Names of the rivals that are better beyond chance; the student is then not registered."""
        against = {who: one for who, one in self.against.items() if who in RIVALS}
        return [self.titles[who] for who, one in against.items() if word_of(one) == WORSE]

    @property
    def tag(self) -> str:
        """The models that it is worse than, for MLflow: such as ``MSE baseline``, or ``none``."""
        return ", ".join(self.worse_than) or ("none" if self.figure else "not measured")

    def sentences(self) -> list[str]:
        """One sentence per model."""
        said = []
        for who, one in self.against.items():
            own, other = self.rows if who == "baseline" else ("student", who)
            whose = "against" if own == "student" else f"{self.titles[own]} against"
            title = self.titles[other]
            said.append(_sentence(f"{whose} {'' if title.startswith('its ') else 'the '}{title}", one))
        return [f"{each[0].upper()}{each[1:]}" for each in said]

    def report(self) -> dict[str, Any]:
        """The verdict as ``report.json`` and ``--json`` have it."""
        against = {
            who: {"verdict": word_of(one), **dataclasses.asdict(one)} for who, one in self.against.items()
        }
        return {"figure": self.figure, "rows": list(self.rows), "against": against}


def word_of(one: Paired) -> str:
    """Say in a word how a model compares with another: `BETTER`, `WORSE` or `NOT_APART`."""
    if one.low is None or one.high is None:
        return NOT_APART
    return BETTER if one.low > 0 else WORSE if one.high < 0 else NOT_APART


def figure_on_test(quality: str, metrics: Mapping[str, float]) -> str:
    """Name the test figure of what selected; on a pool of dev passages it is that of the whole collection."""
    return next((name for name in (quality, quality.replace("_pool_", "_")) if name in metrics), "")


def verdict_on(
    tested: Mapping[str, Mapping[str, Any]],
    quality: str,
    titles: Mapping[str, str],
    rows: tuple[str, str] = ("student", "baseline"),
) -> Verdict:
    """Compare the best student with the baseline, the untrained student and its trial on the test split.

    Each tested model has its ``metrics`` and the ``items`` of the test figure; the best student is
    ``student``. A figure without items has no interval, and is never worse. The quality is the dev figure
    that selected the student; `Verdict` explains the rest.
    """
    figure = figure_on_test(quality, tested["student"]["metrics"])
    pairs = {"baseline": rows, **{who: ("student", who) for who in ("untrained", "trial")}}
    found = {
        who: _compared(tested[own], tested[other], figure)
        for who, (own, other) in pairs.items()
        if other in tested and figure in tested[other]["metrics"]
    }
    return Verdict(figure, corrected(found), titles, rows)


def _compared(best: Mapping[str, Any], other: Mapping[str, Any], figure: str) -> Paired:
    if best.get("items") and other.get("items"):
        return compare_items(items_from(best["items"]), items_from(other["items"]))
    own, others = float(best["metrics"][figure]), float(other["metrics"][figure])
    return Paired(own, others, own - others)


def _sentence(name: str, one: Paired) -> str:
    """Such as ``Against the MSE baseline: better (p = 0.0001), 0.5199 to 0.4626.``, p after Holm."""
    figures = f"{one.model:.4f} to {one.other:.4f}"
    p = one.p if one.p_holm is None else one.p_holm
    if p is None or one.low is None or one.high is None:
        return f"{name}: {figures}, a difference of {one.difference:+.4f} with no interval."
    word = "no difference" if word_of(one) == NOT_APART else word_of(one)
    chance = f"p = {p:.2g}" if p >= 0.0001 else "p < 0.0001"
    return (
        f"{name}: {word} ({chance}), {figures}, a difference of {one.difference:+.4f} "
        f"(95 % interval {one.low:+.4f} to {one.high:+.4f})."
    )
