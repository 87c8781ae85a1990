"""The contract of a choice of student, and how the kinds of students are found."""

import functools
from typing import Any, ClassVar

from stillhouse.core.identity import Spec
from stillhouse.experiments.data_kind import found_in
from stillhouse.plan.data import Model
from stillhouse.teachers.weights import resolve_model


class StudentChoice:
    """A kind of student as a user describes it: a frozen dataclass in a file of its own in ``students/``.

    Attributes:
        key: Its name in ``student.kind``.
        default: Whether it is the student of an experiment that names no kind.
        checkpoint: Name or path of the checkpoint that the student starts from; empty takes the teacher's.
    """

    key: ClassVar[str]
    default: ClassVar[bool] = False
    checkpoint: str

    def base(self, teacher: Model) -> Model:
        """The checkpoint that the student starts from."""
        return resolve_model(self.checkpoint) if self.checkpoint else teacher

    def spec(self, teacher: Model, seed: int) -> Spec[Any]:
        """The student.

        Args:
            teacher: Whose checkpoint it starts from, unless it names another.
            seed: Seed of its random weights.
        """
        raise NotImplementedError


def dropout_of(given: float) -> float | None:
    """The dropout to set; None leaves the checkpoint's own."""
    return given if given >= 0 else None


@functools.cache
def student_kinds() -> dict[str, type[StudentChoice]]:
    """Every kind of student by its key: one per file of ``experiments/students``."""
    return found_in("stillhouse.experiments.students", StudentChoice)
