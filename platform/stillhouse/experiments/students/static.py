"""A static student: a table of token vectors, and their mean."""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.student_choice import StudentChoice
from stillhouse.plan.data import Model

STARTS = ("words", "contextless")


@dataclass(frozen=True)
class StaticChoice(StudentChoice):
    """A table of token vectors and their mean.

    Attributes:
        checkpoint: Name or path of the checkpoint that the student starts from; empty takes the teacher's.
        dim: Dimension of the table, by PCA of the checkpoint's; 0 keeps the checkpoint's.
        start: First values of the table: ``words``, the checkpoint's word vectors, or ``contextless``, what
            the checkpoint makes of each token alone.
    """

    key = "static"
    checkpoint: str = ""
    dim: int = 0
    start: str = "words"

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.dim >= 0, "student.dim >= 0", dim=self.dim)
        require(self.start in STARTS, f"student.start in {STARTS}", start=self.start)

    def spec(self, teacher: Model, seed: int) -> Spec[Any]:
        """The student, made from the teacher or from another checkpoint."""
        from stillhouse.students.static import StaticStudent

        return spec(StaticStudent, base=self.base(teacher), seed=seed, dim=self.dim, start=self.start)
