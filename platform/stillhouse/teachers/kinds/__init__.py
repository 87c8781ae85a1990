"""Kinds of teachers: one file each, found by file name, which ``teacher.kind`` chooses.

A kind has a value, a frozen `Teacher` whose ``maker`` is the file's name, and a class that makes its vectors.
The values of the kinds here are light, and stand in `values.data`; a new kind may have its value beside its
class.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from stillhouse.core.artifacts import Workspace
from stillhouse.core.modules import load_module, module_names
from stillhouse.core.types import Encoder
from stillhouse.corpora.reading.understood import Understood
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.forward import Vectors
from stillhouse.teachers.shards import Shard, Work
from stillhouse.values.data import Store, Teacher

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
        self, works: list[Work], missing: list[tuple[int, int]], actors: int, told: Callable[[int], None]
    ) -> Iterator[tuple[int, Shard]]:
        """Make shards: ``missing`` has the number of a store and the index of a shard, at least once.

        With 0 ``actors`` the teacher runs in this process, and ``told`` is called with the rows that are done
        of an unfinished shard.
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
