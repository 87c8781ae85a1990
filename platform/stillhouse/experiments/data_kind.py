"""The contract of a kind of data of an experiment, and the list of the kinds."""

import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from stillhouse.core.errors import require
from stillhouse.core.modules import module_names, named
from stillhouse.values.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stillhouse.core.identity import Spec
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation
    from stillhouse.values.data import AnyStore, TextTable

K = TypeVar("K")
P = TypeVar("P")
PYDOCS_SENTENCES, PYDOCS_PAIRS = 20_480, 2_048
"""What ``pydocs`` gives where no number is stated, the demo's sizes. Everything else is then read whole."""


def check_count(path: str, count: int | None) -> None:
    """Refuse a negative number of rows; without one, or with 0, all of them are taken (see `counting`)."""
    require(count is None or count >= 0, f"{path} >= 0", count=count)


def of_pydocs(count: int | None, usual: int) -> int:
    """Number of rows that are selected from ``pydocs``; 0 for all."""
    return usual if count is None else count


@dataclass(frozen=True)
class Measure:
    """Something that the dev and the test suite measure.

    Attributes:
        name: Its name in ``selection.by``.
        figure: The dev figure that selects.
        dev: The evaluator of the dev split; None where a stage has a dev suite of its own for it.
        test: The evaluator of the locked test split.
        held_out: Teacher's vectors of dev texts on which stages may report their loss.
    """

    name: str
    figure: str
    dev: "Spec[Any] | None"
    test: "Spec[Any]"
    held_out: "AnyStore | None" = None


class DataKind(Kind[P]):
    """A kind of data as a user describes it: a frozen dataclass in a file of its own in ``kinds/``.

    Attributes:
        title: The kind in words, for messages.
        remedy: How a user gives it, for messages.
        is_source: Whether it is text to distil on; an experiment has exactly one source.
        default: Whether it is the source of an experiment that names none.
        counts_as: ``sentences`` or ``labels`` where ``budget.fraction`` may take a share of it, else empty.
        provides: Other kinds whose prepared form it adds to the setting as well as its own.
        selects: Names of ``selection.by`` that it offers.
        read_by: Its `Reader`, as ``module:class``.
    """

    title: ClassVar[str]
    remedy: ClassVar[str]
    is_source: ClassVar[bool] = False
    default: ClassVar[bool] = False
    counts_as: ClassVar[str] = ""
    provides: ClassVar[tuple[type[Kind[Any]], ...]] = ()
    selects: ClassVar[tuple[str, ...]] = ()
    read_by: ClassVar[str]

    def brings(self) -> "tuple[DataKind[Any], ...]":
        """Kinds that an experiment with this one also has, with these values unless it names its own."""
        return ()

    def agree(self, experiment: "Experiment") -> None:
        """Refuse other values of the experiment that contradict this one. Nothing is read.

        Raises:
            BadInput: There is such a value.
        """

    def present(self, experiment: "Experiment") -> bool:
        """Return whether anything of this kind reaches the methods."""
        return self.counts_as != "labels" or experiment.budget.finetune != 0

    @property
    def reader(self) -> "Reader[Any, P]":
        """What reads it."""
        reader: Reader[Any, P] = named(self.read_by)(self)
        return reader


class Reader(Generic[K, P]):
    """The part of a kind of data that reads and measures, and so imports what is heavy."""

    def __init__(self, kind: K) -> None:
        self.kind = kind

    def check_files(self) -> None:
        """Refuse missing files that are read later; commands ask for it, plans alone do without them."""

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing or malformed files before any work.

        Raises:
            BadInput: There is such a file.
        """

    def sketch(self, experiment: "Experiment") -> P:
        """A stand-in for the prepared form, made without reading anything: enough to plan with."""
        raise NotImplementedError

    def measured(self, context: "Preparation") -> "Mapping[str, Sequence[str | TextTable]]":
        """Return the texts that its evaluators measure with on dev and test; none of them is trained on."""
        return {}

    def measures(self, context: "Preparation") -> "Iterable[Measure]":
        """Read what its evaluators measure with, and name them; the first selects unless another is named."""
        return ()

    def prepare(self, context: "Preparation") -> P | None:
        """Read the data, and name the teacher's vectors and whatever else is made of it; skip what is read.

        Returns:
            The prepared form, which has `share` if the kind ``counts_as`` anything; None where there turns
            out to be nothing of this kind.
        """
        raise NotImplementedError

    def complete(self, value: P, context: "Preparation") -> P:
        """Finish the prepared form once the share is taken."""
        return value

    def at_hand(self, context: "Preparation") -> bool:
        """Return whether `prepare` reads the data in seconds: it is small, or has been read before."""
        return True

    def glimpse(self, count: int) -> list[str]:
        """Some of the texts, read without what `prepare` writes; none where the kind cannot tell."""
        return []


def found_in(package: str, base: type[Any]) -> dict[str, Any]:
    """The classes of a package's modules that derive from a base, by their ``key``."""
    found: dict[str, Any] = {}
    for module in module_names(importlib.import_module(package).__path__):
        name = f"{package}.{module}"
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == name:
                found[str(vars(value)["key"])] = value
    return found


@functools.cache
def data_kinds() -> dict[str, type[DataKind[Any]]]:
    """Every kind of data by its key: one per file of ``experiments/kinds``."""
    return found_in("stillhouse.experiments.kinds", DataKind)
