"""A recurrent student: the first layers of a checkpoint, tied and applied repeatedly."""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.student_choice import StudentChoice, dropout_of
from stillhouse.plan.data import Model


@dataclass(frozen=True)
class RecurrentChoice(StudentChoice):
    """The first layers of a checkpoint, tied and repeated to its depth.

    Attributes:
        checkpoint: Name or path of the checkpoint that the student starts from; empty takes the teacher's.
        unit: Number of layers that recur (|RU|).
        bottleneck: Dimension of the factorised word vectors; 0 leaves them whole.
        dropout: Dropout of the student during training; a negative value takes the checkpoint's own.
    """

    key = "recurrent"
    checkpoint: str = ""
    unit: int = 0
    bottleneck: int = 0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(
            self.unit >= 1,
            "student.unit >= 1 for a recurrent student",
            unit=self.unit,
            remedy="Give the number of first layers that recur, such as --set student.unit=3.",
        )
        require(self.bottleneck >= 0, "student.bottleneck >= 0", bottleneck=self.bottleneck)

    def spec(self, teacher: Model, seed: int) -> Spec[Any]:
        """The student, made from the teacher or from another checkpoint."""
        from stillhouse.students.recurrent import RecurrentStudent

        shape = {"unit": self.unit, "bottleneck": self.bottleneck}
        # A narrow table of random factors learns slowly; the method of its paper has a stage for that.
        start = {"bottleneck_start": "svd", "normalize": True}
        dropout = dropout_of(self.dropout)
        return spec(RecurrentStudent, base=self.base(teacher), dropout=dropout, seed=seed, **shape, **start)
