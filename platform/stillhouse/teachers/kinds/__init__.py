"""Kinds of teachers: one file each, found by file name, which ``teacher.kind`` chooses.

A kind has a value, a frozen `Teacher` whose ``maker`` is the file's name, and a class that makes its vectors.
The values of the kinds here are light, and stand in `values.data`; a new kind may have its value beside its
class.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput, require
from stillhouse.core.modules import load_module, module_names
from stillhouse.core.types import Encoder
from stillhouse.corpora.reading.understood import Understood
from stillhouse.students.head import check_published, truncated, with_head
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.forward import Vectors
from stillhouse.teachers.prompts import chosen_prompts, prompts_of
from stillhouse.teachers.runtimes import missing_extra
from stillhouse.teachers.shards import Shard, Work
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Ensemble, Model, Store, Teacher, shares_of

Embed = Callable[[Sequence[str]], Vectors]
"""From texts to their vectors, (N, E)."""


class TeacherKind:
    """The base of every kind. A teacher, and that of every store, is of the own kind."""

    def find(self, choice: TeacherChoice) -> Teacher:
        """Find the teacher that a user describes."""
        raise NotImplementedError

    def remarks(self, choice: TeacherChoice, teacher: Any) -> list[str]:
        """Say in lines what was found out, or is assumed, of the teacher."""
        return []

    def understood(self, teacher: Any) -> list[Understood]:
        """Describe what files were taken for."""
        return []

    def ready(self, work: Work) -> Work:
        """Refuse a store that cannot be built here, and complete what building it needs."""
        return work

    def shards(
        self, works: list[Work], missing: list[tuple[int, int]], actors: int, told: Callable[[int, int], None]
    ) -> Iterator[tuple[int, Shard]]:
        """Make shards: ``missing`` has the number of a store and the index of a shard, at least once.

        With 0 ``actors`` the teacher runs in this process, and ``told`` is called with the number of a store
        and the rows that are done of an unfinished shard.
        """
        raise NotImplementedError

    def encoder(self, teacher: Any, max_length: int, device: str) -> tuple[Encoder, nn.Module | None]:
        """Load the teacher as an encoder in full precision, with its module where it has one."""
        raise NotImplementedError

    def load(self, store: Store, workspace: Workspace, device: str) -> Callable[[Store], Embed]:
        """Load a store's teacher, to compute vectors again as for this store, or one of other prompts."""
        raise NotImplementedError


def kind_of(name: str) -> TeacherKind:
    """Import a kind by its name, which is that of its file.

    Raises:
        BadInput: Unknown kind; the message lists the nearest names.
    """
    module = load_module(__name__, module_names(__path__), name, "kind of teacher")
    classes = (each for each in vars(module).values() if isinstance(each, type))
    own = (each for each in classes if each.__module__ == module.__name__ and issubclass(each, TeacherKind))
    return next(own)()


class Finder:
    """What finds the teacher, or the several ones, that a user describes."""

    def __init__(self, choice: TeacherChoice) -> None:
        self.choice = choice

    def check(self) -> None:
        """Refuse a runtime whose packages are missing, before any work.

        Raises:
            BadInput: It names the extra.
        """
        for choice in self.choice.each:
            if reason := missing_extra(choice.runtime):
                raise BadInput(f"`teacher.runtime = {choice.runtime}` must be able to run, but: {reason}")

    def resolve(self) -> Teacher:
        """Find the teacher: its folder, the files of its vectors, or its endpoint; or all of several.

        Raises:
            BadInput: As of `published`; no such files, or not of texts and vectors; an endpoint that does not
                answer, or refuses the key; or a teacher that is listed twice.
        """
        members = tuple(kind_of(_kind(choice)).find(choice) for choice in self.choice.each)
        if not self.choice.members:
            return members[0]
        lengths = tuple(choice.max_length for choice in self.choice.members)
        _refuse_twice(members, lengths)
        weights = tuple(choice.weight for choice in self.choice.members)
        return Ensemble(members, shares_of(weights), lengths, weights)

    def published(self) -> Model:
        """Find the teacher's folder, and set its head and its prompts.

        Raises:
            BadInput: No such model, it has no such head, dimension or prompt, something in its folder is not
                supported, or only vectors are named.
        """
        choice = self.choice
        require(
            choice.is_model,
            "this needs the teacher as a model",
            teacher=choice.vectors or choice.endpoint or f"{len(choice.members)} teachers",
            remedy="Leave teacher.vectors, teacher.endpoint and teacher.members out, and name the model "
            "(teacher.name).",
        )
        model = with_head(resolve_model(choice.name), choice.pooling, choice.normalize)
        check_published(model)
        prompts = chosen_prompts(model, vars(choice.prompts))
        return replace(truncated(model, choice.dimension), prompts=prompts)

    def remarks(self, teacher: Teacher) -> list[str]:
        """Say what is assumed of the teacher's head, or what it contradicts, and which prompts it has."""
        pairs = zip(self.choice.each, teacher.members, strict=True)
        lines = [line for choice, member in pairs for line in kind_of(member.maker).remarks(choice, member)]
        if teacher.weights:
            lead = teacher.lead
            own = f"; a student without a checkpoint starts from {lead.name}" if lead.checkpoint else ""
            lines.append(f"teachers, with their weights: {teacher.name}{own}")
        return lines


def _kind(choice: TeacherChoice) -> str:
    return choice.kind or ("endpoint" if choice.endpoint else "files" if choice.vectors else "model")


def _refuse_twice(members: tuple[Teacher, ...], lengths: tuple[int, ...]) -> None:
    """Refuse a teacher that is listed twice: the same vectors under the same or under another name."""
    reading = [
        (member.fingerprint, prompts_of(member), length)
        for member, length in zip(members, lengths, strict=True)
    ]
    twice = [member.name for member, reads in zip(members, reading, strict=True) if reading.count(reads) > 1]
    require(
        not twice,
        "each teacher must be listed once",
        twice=twice,
        remedy="Give it a larger weight instead.",
    )
