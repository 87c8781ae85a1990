"""Students made of a teacher: their heads, lengths and specs, and what is said of them."""

from functools import cached_property
from typing import Any, Generic, TypeVar

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.student_choice import StudentChoice
from stillhouse.experiments.students.recurrent import RecurrentChoice
from stillhouse.experiments.students.static import StaticChoice
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.students.backbone import layer_count
from stillhouse.students.head import Head, has_pooler, head_of, published_length, require_dense
from stillhouse.students.pooling import POOLER
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.static import StaticStudent
from stillhouse.students.transformer import TransformerStudent, select_layers
from stillhouse.teachers.weights import model_folder, resolve_model
from stillhouse.values.data import Model, Teacher

C = TypeVar("C", bound=StudentChoice)


class StudentMaker(Generic[C]):
    """The part of a kind of student that reads checkpoints, and so imports what is heavy.

    The student starts from the teacher's checkpoint, unless it names another, and has the teacher's head.
    """

    def __init__(self, choice: C, teacher: Teacher) -> None:
        self.choice, self.teacher = choice, teacher

    @cached_property
    def base(self) -> Model:
        """The checkpoint that the student starts from.

        Raises:
            BadInput: None is named, and the teacher is no model that it could start from.
        """
        if self.choice.checkpoint:
            return resolve_model(self.choice.checkpoint)
        base = self.teacher.lead.checkpoint
        require(
            base is not None,
            "student.checkpoint must be given where the teacher is no model to start from",
            teacher=self.teacher.name,
            remedy="Name a model or a folder, such as --student sentence-transformers/all-MiniLM-L6-v2.",
        )
        assert base is not None
        return base.bare()

    @property
    def head(self) -> Head:
        """Pooling and norm: the student's own fields, else those of the teacher.

        A pooling that this kind of student, or its checkpoint, does not have becomes another; see `remarks`.
        """
        choice, theirs = self.choice, self._default_head
        normalize = theirs.normalize if choice.normalize is None else choice.normalize
        pooling = choice.pooling or theirs.pooling
        if not choice.pooling and pooling == POOLER and (POOLER not in choice.poolings or choice.checkpoint):
            pooling = POOLER if POOLER in choice.poolings and has_pooler(self.base) else "cls"
        if pooling not in choice.poolings:
            pooling = "mean"
        return theirs._replace(pooling=pooling, normalize=normalize)

    @property
    def _default_head(self) -> Head:
        """The teacher's head; vectors say nothing of a pooling, and that of the checkpoint counts.

        Of several teachers it is the pooling of the one that the student starts from.
        """
        head = head_of(self.teacher.lead.checkpoint or self.base)
        return head._replace(normalize=head_of(self.teacher).normalize)

    def length(self, longest: int) -> int:
        """Tokens per text that the student reads, where the teacher reads ``longest``."""
        choice = self.choice
        if choice.max_length or not choice.checkpoint:
            return choice.max_length or longest
        return min(longest, published_length(Model("", path=str(model_folder(choice.checkpoint)))))

    def remarks(self, longest: int) -> list[str]:
        """Say where the student differs from its checkpoint or its teacher although the user did not ask."""
        lines = self._left_out()
        if self.teacher.lead.checkpoint is None:
            return lines
        theirs, head = self._default_head.pooling, self.head
        if not self.choice.pooling and head.pooling != theirs:
            lines.append(
                f"note: the student has {head.pooling} pooling: a {self.choice.key} student of this "
                f"checkpoint cannot have the teacher's, {theirs}. Set student.pooling to choose another."
            )
        length = self.length(longest)
        if not self.choice.max_length and length < longest:
            lines.append(
                f"note: the student reads {length} tokens per text, all that its checkpoint has; the teacher "
                f"reads {longest}."
            )
        return lines

    def left_out(self, head: Head) -> tuple[str, ...]:
        """The modules of a checkpoint with this head that this kind of student does not have."""
        return (*(("Dense",) if head.dense else ()), *head.others)

    def _left_out(self) -> list[str]:
        """Say which modules of its checkpoint the student does not have."""
        if not self.choice.checkpoint and self.teacher.lead.checkpoint is None:
            return []
        names = ", ".join(dict.fromkeys(self.left_out(head_of(self.base))))
        if not names:
            return []
        whose = self.base.title
        return [f"note: the student has no {names}, which {whose} has beside its encoder and its pooling."]

    def spec(self, seed: int) -> Spec[Any]:
        """The student, with random weights by the seed."""
        raise NotImplementedError


class TransformerMaker(StudentMaker[TransformerChoice]):
    """The maker of transformers."""

    def left_out(self, head: Head) -> tuple[str, ...]:
        """Whatever is no linear layer, which the student has unless it was told otherwise."""
        return head.others

    def spec(self, seed: int) -> Spec[Any]:
        """The student, made from the teacher or from another checkpoint."""
        choice, base = self.choice, self.base
        total = layer_count(base)
        listed = 0 if isinstance(choice.layers, str) else len(choice.layers)
        by_rule = total if choice.layers == "all" else max(1, total // 2)
        layers = select_layers(choice.layers, total, choice.keep or listed or by_rule)
        head = self.head
        if choice.dense:
            require_dense(base)
        return spec(
            TransformerStudent,
            base=base,
            layers=layers,
            pooling=head.pooling,
            normalize=head.normalize,
            dropout=_dropout(choice.dropout),
            seed=seed,
            freeze_words=choice.freeze_words,
            dense=head_of(base).dense if choice.dense is None else choice.dense,
        )


class RecurrentMaker(StudentMaker[RecurrentChoice]):
    """The maker of recurrent students."""

    def spec(self, seed: int) -> Spec[Any]:
        """The student, made from the teacher or from another checkpoint."""
        choice, base = self.choice, self.base
        shape: dict[str, Any] = {"unit": choice.unit, "bottleneck": choice.bottleneck}
        if choice.repeats:
            shape["repeats"] = choice.repeats
        if choice.layers != "first":
            shape["layers"] = select_layers(choice.layers, layer_count(base), choice.unit)
        # A narrow table of random factors learns slowly; the method of its paper has a stage for that.
        head = self.head
        start = {"bottleneck_start": "svd", "pooling": head.pooling, "normalize": head.normalize}
        dropout = _dropout(choice.dropout)
        return spec(RecurrentStudent, base=base, dropout=dropout, seed=seed, **shape, **start)


class StaticMaker(StudentMaker[StaticChoice]):
    """The maker of static students."""

    def left_out(self, head: Head) -> tuple[str, ...]:
        """Nothing to speak of where the table is one of words, which is all that is taken."""
        return () if self.choice.start == "words" else super().left_out(head)

    def spec(self, seed: int) -> Spec[Any]:
        """The student, made from the teacher or from another checkpoint."""
        choice, head = self.choice, self.head
        # Words have no states to pool: the pooling would only change the student's identity.
        pooling = {"pooling": head.pooling} if choice.start == "contextless" else {}
        shape = {"dim": choice.dim, "start": choice.start, "normalize": head.normalize, **pooling}
        return spec(StaticStudent, base=self.base, seed=seed, **shape)


def _dropout(given: float) -> float | None:
    """The dropout to set; None leaves the checkpoint's own.

    Raises:
        BadInput: It would drop everything.
    """
    require(given < 1, "student.dropout < 1", dropout=given)
    return given if given >= 0 else None
