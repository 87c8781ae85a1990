"""Dev figures of the student that a plan starts from, in the precision of the training.

They are measured once and kept in the workspace, under what they were measured of: trials that start from one
student share its figures.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import Workspace, lock_of_file, locked
from stillhouse.core.identity import fingerprint
from stillhouse.core.notes import FIGURES, read_note, write_note
from stillhouse.core.types import ScoringObjective
from stillhouse.evaluation.suites import run_suite
from stillhouse.training.checkpoint import rng_untouched
from stillhouse.training.least_squares import first_layer, started
from stillhouse.training.module import build_student
from stillhouse.training.watch import encoder_of
from stillhouse.values.stage import Stage

if TYPE_CHECKING:
    from stillhouse.training.where import Where


def start_figures(stage: Stage, workspace: Workspace, where: "Where", device: str) -> dict[str, float]:
    """Measure the student that a plan starts from on the dev suite of a stage.

    Returns:
        Figures by name; none without a dev suite, and of a student that an earlier stage made part of or
        whose scores come from the objective.
    """
    first, dev, objective = first_of(stage), stage.dev, stage.objective.target
    scores = inspect.isclass(objective) and issubclass(objective, ScoringObjective)
    if dev is None or scores or first.start_from is not None:
        return {}

    def measure() -> dict[str, float]:
        with rng_untouched():
            start = untrained(first, workspace, device, stage.autocast)
            return run_suite(dev, start, workspace, search=where.search)

    of = (first.student, first.seed, first.max_length, first.prompts, dev, stage.autocast)
    layer = first_layer(first)
    return _kept(workspace, of if layer is None else (*of, layer), measure)


def _kept(workspace: Workspace, of: object, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Figures that are known, or are measured now; others who want the same wait for them."""
    path = workspace.root / FIGURES / f"{fingerprint(of)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock_of_file(path)):
        known = read_note(path, "The student is measured again.")
        if known is None:
            known = {"metrics": measure()}
            write_note(path, known)
    figures: dict[str, float] = known["metrics"]
    return figures


def first_of(stage: Stage) -> Stage:
    """Find the first stage that trained this student; a projection may have been added later."""

    def body(of: Stage) -> tuple[Any, ...]:
        kept = {k: v for k, v in of.student.kwargs.items() if not k.startswith("projection")}
        return of.student.target, kept

    while stage.start_from is not None and body(stage.start_from) == body(stage):
        stage = stage.start_from
    return stage


def untrained(stage: Stage, workspace: Workspace, device: str, precision: str = "float32") -> Any:
    """Build the student that a stage starts from: the selected layers with their original weights."""
    student = build_student(stage, started(stage, workspace))
    return encoder_of(student, stage.max_length, precision, device, stage.prompts)
