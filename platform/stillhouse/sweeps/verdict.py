"""Does the champion win on the locked test split? One that loses is said to lose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillhouse.tracking import readable

NAMES = {"baseline": "baseline of equal work", "untrained": "untrained student"}


@dataclass(frozen=True)
class Verdict:
    """The champion beside the two models that it must beat, by the figure that selected it.

    Attributes:
        figure: The test figure; empty if the test split has none of that name.
        champion: The champion's value.
        loses_to: The models with a higher value, and their values.
    """

    figure: str
    champion: float = 0.0
    loses_to: Mapping[str, float] = field(default_factory=dict)

    @property
    def loses(self) -> bool:
        """Whether a model that costs less to make is better."""
        return bool(self.loses_to)

    @property
    def tag(self) -> str:
        """The models that it loses to, for MLflow: such as ``baseline, untrained``, or ``none``."""
        return ", ".join(self.loses_to) or ("none" if self.figure else "not measured")

    def sentence(self) -> str:
        """The verdict in a sentence; empty where the champion wins."""
        if not self.loses:
            return ""
        others = " and ".join(f"the {NAMES[who]} ({value:.4f})" for who, value in self.loses_to.items())
        own = f"{readable(self.figure)} {self.champion:.4f}"
        return f"The champion loses on the test split: {own}, below {others}."

    def report(self) -> dict[str, Any]:
        """The verdict as ``report.json`` and ``--json`` have it."""
        return {"figure": self.figure, "champion": self.champion, "loses_to": dict(self.loses_to)}


def verdict_on(tested: Mapping[str, Mapping[str, Any]], quality: str) -> Verdict:
    """Compare the champion with the baseline and the untrained student on the test split.

    Args:
        tested: Model to its ``metrics``; the champion is ``student``.
        quality: The dev figure that selected it. On a pool of dev passages (``…_pool_cosine_…``), the test
            figure is that of the whole collection.
    """
    metrics = tested["student"]["metrics"]
    figure = next((name for name in (quality, quality.replace("_pool_", "_")) if name in metrics), "")
    if not figure:
        return Verdict("")
    champion = float(metrics[figure])
    values = {who: tested[who]["metrics"].get(figure) for who in NAMES if who in tested}
    better = {who: float(value) for who, value in values.items() if value is not None and value > champion}
    return Verdict(figure, champion, better)
