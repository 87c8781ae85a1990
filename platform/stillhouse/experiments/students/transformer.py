"""A transformer student: some of the layers of a checkpoint."""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.student_choice import StudentChoice
from stillhouse.teachers.choice import POOLINGS


@dataclass(frozen=True)
class TransformerChoice(StudentChoice):
    """A transformer with some of the layers of the checkpoint that it starts from.

    Attributes:
        checkpoint: Name or path of the checkpoint that the student starts from; empty takes the teacher's.
        layers: Layers to keep: ``spread`` (the first, the last, and evenly between them), ``every-other`` (0,
            2, 4, …), ``first``, ``last``, ``all``, or a list of indices such as [0,2,5].
        keep: Number of layers that such a rule keeps; 0 keeps half, or all.
        dropout: Dropout of the student during training; a negative value takes the checkpoint's own.
        pooling: How one vector is made of the states: ``cls``, ``mean``, ``max``, ``last`` (token) or
            ``pooler`` (BERT's layer after [CLS]); empty pools as the teacher does.
        normalize: Whether vectors have length 1; None does as the teacher's.
        max_length: Tokens per text that the student reads; 0 reads as many as the teacher.
        prompts: What the student is given before every text, by role; its export states them.
        freeze_words: Whether the word vectors stay as they are in the checkpoint, so that a student made of
            its teacher's layers goes on reading rare words as its teacher does.
        dense: Whether the linear layers that the checkpoint has after its pooling stay, as one layer that is
            trained on; None keeps them where there are any.
    """

    key = "transformer"
    made_by = "stillhouse.experiments.student_makers:TransformerMaker"
    default = True
    poolings = POOLINGS
    checkpoint: str = ""
    layers: str | tuple[int, ...] = "spread"
    keep: int = 0
    dropout: float = 0.0
    pooling: str = ""
    normalize: bool | None = None
    max_length: int = 0
    prompts: Prompts = NO_PROMPTS
    freeze_words: bool = False
    dense: bool | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "student")
        if isinstance(self.layers, list):
            object.__setattr__(self, "layers", tuple(self.layers))
        require(self.keep >= 0, "student.keep >= 0", keep=self.keep)
        self.check_head()
