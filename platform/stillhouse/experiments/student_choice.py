"""The contract of a choice of student, and how the kinds of students are found."""

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec
from stillhouse.core.roles import Prompts
from stillhouse.experiments.data_kind import found_in
from stillhouse.teachers.weights import model_folder, resolve_model
from stillhouse.values.data import Model, Teacher

if TYPE_CHECKING:
    from stillhouse.students.head import Head


class StudentChoice:
    """A kind of student as a user describes it: a frozen dataclass in a file of its own in ``students/``.

    Attributes:
        key: Its name in ``student.kind``.
        default: Whether it is the student of an experiment that names no kind.
        poolings: Poolings that this kind has.
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

    def base(self, teacher: Teacher) -> Model:
        """The checkpoint that the student starts from.

        Raises:
            BadInput: None is named, and the teacher is no model that it could start from.
        """
        if self.checkpoint:
            return resolve_model(self.checkpoint)
        base = teacher.lead.checkpoint
        require(
            base is not None,
            "student.checkpoint must be given where the teacher is no model to start from",
            teacher=teacher.name,
            remedy="Name a model or a folder, such as --student sentence-transformers/all-MiniLM-L6-v2.",
        )
        assert base is not None
        return base.bare()

    def head(self, teacher: Teacher) -> "Head":
        """Pooling and norm: the student's own fields, else those of the teacher.

        A pooling that this kind of student, or its checkpoint, does not have becomes another; see `remarks`.
        """
        from stillhouse.students.head import has_pooler
        from stillhouse.students.pooling import POOLER

        theirs = self._default_head(teacher)
        normalize = theirs.normalize if self.normalize is None else self.normalize
        pooling = self.pooling or theirs.pooling
        if not self.pooling and pooling == POOLER and (POOLER not in self.poolings or self.checkpoint):
            usable = POOLER in self.poolings and has_pooler(self.base(teacher))
            pooling = POOLER if usable else "cls"
        if pooling not in self.poolings:
            pooling = "mean"
        return theirs._replace(pooling=pooling, normalize=normalize)

    def _default_head(self, teacher: Teacher) -> "Head":
        """The teacher's head; vectors say nothing of a pooling, and that of the checkpoint counts.

        Of several teachers it is the pooling of the one that the student starts from.
        """
        from stillhouse.students.head import head_of

        head = head_of(teacher.lead.checkpoint or self.base(teacher))
        return head._replace(normalize=head_of(teacher).normalize)

    def length(self, teacher: Teacher, longest: int) -> int:
        """Tokens per text that the student reads.

        Args:
            teacher: The teacher.
            longest: Tokens per text that the teacher reads.
        """
        from stillhouse.students.head import published_length

        if self.max_length or not self.checkpoint:
            return self.max_length or longest
        return min(longest, published_length(Model("", path=str(model_folder(self.checkpoint)))))

    def remarks(self, teacher: Teacher, longest: int) -> list[str]:
        """Say where the student differs from its checkpoint or its teacher although the user did not ask."""
        lines = self._left_out(teacher)
        if teacher.lead.checkpoint is None:
            return lines
        theirs, head = self._default_head(teacher).pooling, self.head(teacher)
        if not self.pooling and head.pooling != theirs:
            lines.append(
                f"note: the student has {head.pooling} pooling: a {self.key} student of this checkpoint "
                f"cannot have the teacher's, {theirs}. Set student.pooling to choose another."
            )
        length = self.length(teacher, longest)
        if not self.max_length and length < longest:
            lines.append(
                f"note: the student reads {length} tokens per text, all that its checkpoint has; the teacher "
                f"reads {longest}."
            )
        return lines

    def left_out(self, head: "Head") -> tuple[str, ...]:
        """The modules of a checkpoint with this head that this kind of student does not have."""
        return (*(("Dense",) if head.dense else ()), *head.others)

    def _left_out(self, teacher: Teacher) -> list[str]:
        """Say which modules of its checkpoint the student does not have."""
        from stillhouse.students.head import head_of

        if not self.checkpoint and teacher.lead.checkpoint is None:
            return []
        base = self.base(teacher)
        names = ", ".join(dict.fromkeys(self.left_out(head_of(base))))
        if not names:
            return []
        whose = base.title
        return [f"note: the student has no {names}, which {whose} has beside its encoder and its pooling."]

    def spec(self, teacher: Teacher, seed: int) -> Spec[Any]:
        """The student.

        Args:
            teacher: Whose checkpoint it starts from, unless it names another, and whose head it has.
            seed: Seed of its random weights.
        """
        raise NotImplementedError


def dropout_of(given: float) -> float | None:
    """The dropout to set; None leaves the checkpoint's own.

    Raises:
        BadInput: It would drop everything.
    """
    require(given < 1, "student.dropout < 1", dropout=given)
    return given if given >= 0 else None


@functools.cache
def student_kinds() -> dict[str, type[StudentChoice]]:
    """Every kind of student by its key: one per file of ``experiments/students``."""
    return found_in("stillhouse.experiments.students", StudentChoice)
