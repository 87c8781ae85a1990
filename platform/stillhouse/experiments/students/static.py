"""A static student: a table of token vectors, and their mean."""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.student_choice import StudentChoice
from stillhouse.teachers.choice import POOLINGS

STARTS = ("words", "contextless")


@dataclass(frozen=True)
class StaticChoice(StudentChoice):
    """A table of token vectors and their mean.

    Attributes:
        checkpoint: Name or path of the checkpoint that the student starts from; empty takes the teacher's.
        dim: Dimension of the table, by PCA of the checkpoint's; 0 keeps the checkpoint's.
        start: First values of the table: ``words``, the checkpoint's word vectors, or ``contextless``, what
            the checkpoint makes of each token alone.
        pooling: How ``contextless`` makes one vector of the checkpoint's states for a token: ``cls``,
            ``mean``, ``max``, ``last`` or ``pooler``; empty pools as the teacher does. The vectors of a
            text's tokens are always averaged.
        normalize: Whether vectors have length 1; None does as the teacher's.
        max_length: Tokens per text that the student reads; 0 reads as many as the teacher.
        prompts: What the student is given before every text, by role; its export states them.
    """

    key = "static"
    made_by = "stillhouse.experiments.student_makers:StaticMaker"
    poolings = POOLINGS
    checkpoint: str = ""
    dim: int = 0
    start: str = "words"
    pooling: str = ""
    normalize: bool | None = None
    max_length: int = 0
    prompts: Prompts = NO_PROMPTS

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "student")
        require(self.dim >= 0, "student.dim >= 0", dim=self.dim)
        require(self.start in STARTS, f"student.start in {STARTS}", start=self.start)
        self.check_head()
