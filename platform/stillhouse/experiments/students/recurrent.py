"""A recurrent student: some layers of a checkpoint, tied and applied repeatedly, and narrow word vectors."""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.student_choice import StudentChoice


@dataclass(frozen=True)
class RecurrentChoice(StudentChoice):
    """Some layers of a checkpoint, tied and repeated to its depth.

    Attributes:
        checkpoint: Name or path of the checkpoint that the student starts from; empty takes the teacher's.
        unit: Number of layers that recur (|RU|).
        layers: Which ones: ``first``, as in the paper, another rule of a transformer's layers, or a list.
        repeats: How often they are applied; 0 reaches the checkpoint's depth.
        bottleneck: Dimension of the factorised word vectors; 0 leaves them whole.
        dropout: Dropout of the student during training; a negative value takes the checkpoint's own.
        pooling: How one vector is made of the states: ``cls``, ``mean``, ``max``, ``last`` (token);
            empty pools as the teacher does.
        normalize: Whether vectors have length 1; None does as the teacher's.
        max_length: Tokens per text that the student reads; 0 reads as many as the teacher.
        prompts: What the student is given before every text, by role; its export states them.
    """

    key = "recurrent"
    made_by = "stillhouse.experiments.student_makers:RecurrentMaker"
    poolings = ("cls", "mean", "max", "last")
    checkpoint: str = ""
    unit: int = 0
    layers: str | tuple[int, ...] = "first"
    repeats: int = 0
    bottleneck: int = 0
    dropout: float = 0.0
    pooling: str = ""
    normalize: bool | None = None
    max_length: int = 0
    prompts: Prompts = NO_PROMPTS

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "student")
        require(
            self.unit >= 1,
            "student.unit >= 1 for a recurrent student",
            unit=self.unit,
            remedy="Give the number of first layers that recur, such as --set student.unit=3.",
        )
        require(self.bottleneck >= 0, "student.bottleneck >= 0", bottleneck=self.bottleneck)
        require(self.repeats >= 0, "student.repeats >= 0", repeats=self.repeats)
        if isinstance(self.layers, list):
            object.__setattr__(self, "layers", tuple(self.layers))
        self.check_head()
