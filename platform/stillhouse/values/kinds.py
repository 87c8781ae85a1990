"""The contract between methods and data: a method names the kinds that it reads, a setting holds them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

P = TypeVar("P")


@dataclass(frozen=True)
class DataNeed:
    """A kind of data in a method's ``needs``; a method cannot be planned without what it requires."""

    kind: "type[Kind[Any]]"
    required: bool = True


class _Optional:
    """`Kind.optional`: the kind, as something that a method reads where there is any."""

    def __get__(self, instance: object, owner: "type[Kind[Any]]") -> DataNeed:
        return DataNeed(owner, required=False)


class Kind(Generic[P]):
    """A kind of data. ``P`` is its prepared form, which plans read as ``setting[TheKind]``.

    Attributes:
        key: Its name in experiment files, on the command line and in a setting.
        optional: The kind in ``needs`` of a method that can do without it.
    """

    key: ClassVar[str]
    optional: ClassVar[_Optional] = _Optional()


def needed(needs: "tuple[type[Kind[Any]] | DataNeed, ...]") -> tuple[DataNeed, ...]:
    """The entries of a method's ``needs``, each as a `DataNeed`."""
    return tuple(entry if isinstance(entry, DataNeed) else DataNeed(entry) for entry in needs)
