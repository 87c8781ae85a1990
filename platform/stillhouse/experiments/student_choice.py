"""The contract of a choice of student, and how the kinds of students are found."""

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from stillhouse.core.errors import require
from stillhouse.core.modules import named
from stillhouse.core.roles import Prompts
from stillhouse.experiments.data_kind import found_in
from stillhouse.values.data import Teacher

if TYPE_CHECKING:
    from stillhouse.experiments.student_makers import StudentMaker


class StudentChoice:
    """A kind of student as a user describes it: a frozen dataclass in a file of its own in ``students/``.

    Attributes:
        key: Its name in ``student.kind``.
        default: Whether it is the student of an experiment that names no kind.
        poolings: Poolings that this kind has.
        made_by: Its `StudentMaker`, as ``module:class``.
        checkpoint: Name or path of the checkpoint that the student starts from; empty takes the teacher's, of
            several the first that is a model.
        pooling: One of ``poolings``; empty pools as the teacher does.
        normalize: Whether its vectors have length 1; None does as the teacher's.
        max_length: Tokens per text that the student reads; 0 reads as many as the teacher.
        prompts: What the student is given before every text, by role.
    """

    key: ClassVar[str]
    default: ClassVar[bool] = False
    poolings: ClassVar[tuple[str, ...]] = ()
    made_by: ClassVar[str]
    checkpoint: str
    pooling: str
    normalize: bool | None
    max_length: int
    prompts: Prompts

    def check_head(self) -> None:
        """Check the fields that every kind has.

        Raises:
            BadInput: A pooling that this kind does not have, or a length out of range.
        """
        known = ("", *self.poolings)
        require(self.pooling in known, f"student.pooling in {self.poolings} or empty", pooling=self.pooling)
        require(self.max_length >= 0, "student.max_length >= 0", max_length=self.max_length)

    def of(self, teacher: Teacher) -> "StudentMaker[Any]":
        """What makes the student of a teacher: of its checkpoint unless it names another, with its head."""
        maker: StudentMaker[Any] = named(self.made_by)(self, teacher)
        return maker


@functools.cache
def student_kinds() -> dict[str, type[StudentChoice]]:
    """Every kind of student by its key: one per file of ``experiments/students``."""
    return found_in("stillhouse.experiments.students", StudentChoice)
