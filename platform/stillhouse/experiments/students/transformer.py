"""A transformer student: some of the layers of a checkpoint."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.student_choice import StudentChoice, dropout_of
from stillhouse.teachers.choice import POOLINGS
from stillhouse.values.data import Teacher

if TYPE_CHECKING:
    from stillhouse.students.head import Head


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

    def left_out(self, head: "Head") -> tuple[str, ...]:
        """Whatever is no linear layer, which the student has unless it was told otherwise."""
        return head.others

    def spec(self, teacher: Teacher, seed: int) -> Spec[Any]:
        """The student, made from the teacher or from another checkpoint."""
        from stillhouse.students.backbone import layer_count
        from stillhouse.students.head import head_of, require_dense
        from stillhouse.students.transformer import TransformerStudent, select_layers

        base = self.base(teacher)
        total = layer_count(base)
        listed = 0 if isinstance(self.layers, str) else len(self.layers)
        by_rule = total if self.layers == "all" else max(1, total // 2)
        layers = select_layers(self.layers, total, self.keep or listed or by_rule)
        head = self.head(teacher)
        if self.dense:
            require_dense(base)
        return spec(
            TransformerStudent,
            base=base,
            layers=layers,
            pooling=head.pooling,
            normalize=head.normalize,
            dropout=dropout_of(self.dropout),
            seed=seed,
            freeze_words=self.freeze_words,
            dense=head_of(base).dense if self.dense is None else self.dense,
        )
