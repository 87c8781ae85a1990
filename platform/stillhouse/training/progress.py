"""The progress of a run: everything about it that is not a tensor, saved in every checkpoint."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import BadInput, nearest
from stillhouse.values.stage import Stage

if TYPE_CHECKING:
    from stillhouse.training.batching import Batching


class Diverged(Exception):
    """Training cannot continue: the loss is not finite, or the student maps all texts to one point."""


class Stopped(Exception):
    """The callback of evaluations requested an early end. The stage is checkpointed, and unfinished."""


@dataclass(frozen=True)
class Evaluation:
    """One point of a run's curve.

    Attributes:
        stage: The stage's label.
        step: Steps of the stage so far.
        examples: Examples seen so far: in the stage for `fit`, in the whole plan for `run`.
        metrics: The dev metrics.
        final: Whether it is the last evaluation of the stage (from `fit`) or of the whole plan (from `run`).
    """

    stage: str
    step: int
    examples: int
    metrics: dict[str, float]
    final: bool = False


@dataclass
class Progress:
    """The state of a run.

    Attributes:
        step: Number of completed steps.
        seconds: Time spent training, without evaluations, over all resumptions.
        best: (metric, step) of the best evaluations, best first.
        without_better: Number of evaluations since the best one.
        curve: All evaluations.
        logged_step: The step of the last line of training metrics.
        logged_seconds: ``seconds`` at that line.
        gradient_shares: Share of each term in the gradient, for every step at which it was measured.
    """

    step: int = 0
    seconds: float = 0.0
    best: list[tuple[float, int]] = field(default_factory=list)
    without_better: int = 0
    curve: list[Evaluation] = field(default_factory=list)
    logged_step: int = 0
    logged_seconds: float = 0.0
    gradient_shares: list[dict[str, float]] = field(default_factory=list)

    def ended(self, stage: Stage, course: "Batching") -> bool:
        """Return whether the budget or the patience is exhausted."""
        return self.step >= course.steps or 0 < stage.patience <= self.without_better

    def note(self, stage: Stage, course: "Batching", metrics: Mapping[str, float]) -> Evaluation:
        """Add an evaluation to the curve, and update the patience and the best ones, as many as a soup needs.

        Raises:
            BadInput: The selecting metric is not among the metrics.
        """
        if stage.dev is not None and metrics:
            self._rank(selecting(metrics, stage.dev.select), keep=max(1, stage.soup))
        examples, final = course.examples_after(self.step), self.ended(stage, course)
        evaluation = Evaluation(stage.label, self.step, examples, dict(metrics), final=final)
        self.curve.append(evaluation)
        return evaluation

    def state(self) -> dict[str, Any]:
        """Return the progress as plain values."""
        return asdict(self)

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "Progress":
        """Rebuild the progress that `state` returned."""
        best = [(figure, step) for figure, step in state["best"]]
        return cls(**{**state, "best": best, "curve": [Evaluation(**point) for point in state["curve"]]})

    def _rank(self, figure: float, keep: int) -> None:
        better = not self.best or figure > self.best[0][0]
        self.without_better = 0 if better else self.without_better + 1
        self.best = sorted([*self.best, (figure, self.step)], key=lambda kept: (-kept[0], kept[1]))[:keep]


def evaluation_due(course: "Batching", every: int, step: int, points: Collection[int] = ()) -> bool:
    """Return whether to evaluate after a step: at the end, at each point, and after each interval.

    An evaluation that falls within half an interval of the end is left to the end.

    Args:
        course: How many steps there are, and how many examples they see.
        every: Examples between two evaluations; 0 evaluates at the end only.
        step: The step that was taken last.
        points: Numbers of examples after which it is evaluated besides.
    """
    if step >= course.steps:
        return True
    seen, before, whole = (course.examples_after(at) for at in (step, step - 1, course.steps))
    if any(before < point <= seen for point in points):
        return True
    if every == 0:
        return False
    return seen // every > before // every and 2 * (whole - seen) >= every


def selecting(metrics: Mapping[str, float], select: str) -> float:
    """The figure that selects; the worst of all where it is no number.

    Raises:
        BadInput: It is not among the metrics.
    """
    if select not in metrics:
        raise BadInput(
            f"The selecting metric must be one that the dev suite measures, but got {select=}. "
            f"{nearest(select, list(metrics))}"
        )
    value = metrics[select]
    return -math.inf if math.isnan(value) else value
