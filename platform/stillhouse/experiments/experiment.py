"""An experiment: everything but the hyper-parameters, as a composition of frozen values."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from stillhouse.core.errors import require
from stillhouse.core.modules import named
from stillhouse.core.roles import ASYMMETRIC
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.data_kind import DataKind, data_kinds
from stillhouse.experiments.selection import Selection
from stillhouse.experiments.student_choice import StudentChoice, student_kinds
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.values.data import Model, Teacher
from stillhouse.values.kinds import Kind

if TYPE_CHECKING:
    from stillhouse.experiments.with_teacher import WithTeacher

D = TypeVar("D", bound=DataKind[Any])
_SHORTEST = 3
"""Tokens of the shortest text: two marks and a word."""
COMPUTE = ("auto", "float32", "bfloat16")
_REMEDIES = {
    "teacher": "Give the name or the folder of a model, or TeacherChoice(…).",
    "student": "Give TransformerChoice(checkpoint=…), or another choice of a student.",
    "data": "Give kinds of data, such as Sentences(texts=[…]) and Pairs(rows=[…]).",
}


def default_student() -> StudentChoice:
    """The student of an experiment that names none."""
    return next(kind() for kind in student_kinds().values() if kind.default)


@dataclass(frozen=True)
class Experiment:
    """Everything that all trials share.

    Attributes:
        teacher: The large model, or several; a name or a path will do.
        student: The small model, before it is trained.
        data: The kinds of data that are named, one or several. The experiment's `kinds` are these, a source
            of text where none of them is one, and what they bring along.
        without: Keys of kinds that are left out although another kind brings them.
        budget: How long the stages are.
        selection: What selects checkpoints and trials.
        max_length: Tokens per text, for teacher and student; 0 takes what the teacher reads by
            ``teacher.max_length`` or by its folder.
        compute: Precision of teacher and training: ``auto``, ``float32`` or ``bfloat16``.
        seed: Seed of training and of the search; which texts are chosen does not depend on it.
    """

    teacher: TeacherChoice = field(default_factory=TeacherChoice)
    student: StudentChoice = field(default_factory=default_student)
    data: tuple[DataKind[Any], ...] = ()
    without: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    selection: Selection = field(default_factory=Selection)
    max_length: int = 0
    compute: str = "auto"
    seed: int = 0

    if TYPE_CHECKING:
        # What may be given; the fields have what `__post_init__` makes of it.
        def __init__(
            self,
            teacher: TeacherChoice | str = ...,
            student: StudentChoice = ...,
            data: DataKind[Any] | Iterable[DataKind[Any]] = ...,
            without: tuple[str, ...] = ...,
            budget: Budget = ...,
            selection: Selection = ...,
            max_length: int = ...,
            compute: str = ...,
            seed: int = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Check the ranges, and that the kinds of data go together."""
        if isinstance(self.teacher, str):
            object.__setattr__(self, "teacher", TeacherChoice(self.teacher))
        if isinstance(self.data, DataKind):
            object.__setattr__(self, "data", (self.data,))
        check_types(self, "", **_REMEDIES)
        require(
            self.teacher.weight == 1,
            "teacher.weight must go with several teachers",
            weight=self.teacher.weight,
            remedy="Leave it out, or give a list of teachers.",
        )
        require(
            not (self.teacher.members and self.selection.by == ASYMMETRIC),
            "asymmetric search must have one teacher, which embeds the documents",
            teachers=len(self.teacher.members),
            remedy="Select by search, or name one teacher.",
        )
        require(
            self.max_length == 0 or self.max_length >= _SHORTEST,
            f"max_length >= {_SHORTEST}, or 0",
            max_length=self.max_length,
            remedy="A text has a mark at its start and one at its end.",
        )
        require(0 <= self.seed < 2**32, "0 <= seed < 2**32", seed=self.seed)
        require(self.compute in COMPUTE, f"compute in {COMPUTE}", compute=self.compute)
        keys = [kind.key for kind in self.data]
        require(len(set(keys)) == len(keys), "each kind of data must be given once", data=keys)
        sources = [kind.key for kind in self.kinds if kind.is_source]
        require(
            len(sources) == 1,
            "an experiment must have one source of text",
            sources=sources,
            remedy="Leave the others out.",
        )
        for kind in self.kinds:
            kind.agree(self)
        known = ("", *self.selectable())
        require(
            self.selection.by in known,
            f"select in {known}",
            select=self.selection.by,
            remedy="These are what the experiment's data can select by.",
        )
        require(
            self.selection.index == "auto" or ASYMMETRIC in known or "search" in known,
            "selection.index must go with data whose dev queries search",
            index=self.selection.index,
            source=self.source.key,
        )
        require(
            not self.selection.heldout_loss or "agreement" in known,
            "selection.heldout_loss needs sentences, some of which are held out",
            source=self.source.key,
        )

    @cached_property
    def kinds(self) -> tuple[DataKind[Any], ...]:
        """Every kind of data of the experiment, the source first."""
        named = list(self.data)
        if not any(kind.is_source for kind in named):
            named += [kind() for kind in data_kinds().values() if kind.default]
        named.sort(key=lambda kind: not kind.is_source)
        for kind in named:  # the list grows while it is walked: what is brought may bring more
            known = {each.key for each in named} | set(self.without)
            named += [each for each in kind.brings() if each.key not in known]
        return tuple(named)

    @property
    def source(self) -> DataKind[Any]:
        """The kind that gives the text to distil on."""
        return self.kinds[0]

    @property
    def uses_pydocs(self) -> bool:
        """True if the text is the corpus ``pydocs``, which has queries and labelled pairs of its own."""
        return bool(getattr(self.source, "is_pydocs", False))

    @property
    def placeholder_teacher(self) -> Model:
        """A teacher that is not there, for plans that are only checked."""
        return Model("placeholder")

    def get(self, kind: type[Kind[Any]]) -> Any:
        """The experiment's value of a kind; None where it has none."""
        return next((each for each in self.kinds if each.key == kind.key), None)

    def selectable(self) -> tuple[str, ...]:
        """Names that ``selection.by`` may have."""
        return tuple(name for kind in self.kinds for name in kind.selects)

    def available(self) -> dict[str, type[Kind[Any]]]:
        """The kinds of data that reach the methods, by key."""
        present = [kind for kind in self.kinds if kind.present(self)]
        provided = {each.key: each for kind in present for each in kind.provides}
        return {**{kind.key: type(kind) for kind in present}, **provided}

    def check(self) -> None:
        """Refuse missing files, packages and unknown names before any work.

        Raises:
            BadInput: The teacher or a kind of data refuses what it is given.
        """
        self.teacher.finder.check()
        for kind in self.kinds:
            kind.reader.check(self)

    def of(self, teacher: Teacher) -> "WithTeacher":
        """The experiment with its teacher, as `Finder.resolve` finds it."""
        found: WithTeacher = named("stillhouse.experiments.with_teacher:WithTeacher")(self, teacher)
        return found
