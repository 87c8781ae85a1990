"""The contract of a suite of published benchmarks; the suites themselves are the files of `benchmarks`.

A suite is prepared before it is run: its files are read and checked before anything is encoded. Sets with a
dev and a test split are measured on dev; ``final`` opens the test splits. STS2017 has a test split only. Sets
that were published as a whole (Tatoeba, Cranfield, MR, …) are measured in both cases.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from stillhouse.core.artifacts import Workspace, sha256_of
from stillhouse.core.identity import fingerprint

if TYPE_CHECKING:
    from stillhouse.evaluation.finite_encoder import FiniteEncoder
    from stillhouse.evaluation.items import Figures, Measured


@dataclass(frozen=True)
class Options:
    """Options of a run of a suite.

    Attributes:
        final: Open the test splits.
        workspace: Where a suite may keep what it computes.
        stages: Folders of the measured models that are stages, by their names: what they were trained on can
            be found there.
        flags: Values of the suite's own flags by name, see `benchmarks.suite_flags`.
    """

    final: bool = False
    workspace: Workspace | None = None
    stages: Mapping[str, Path] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)

    def flag(self, name: str, default: Any = None) -> Any:
        """The value of a flag; the default where it was not given."""
        value = self.flags.get(name)
        return default if value is None else value


@dataclass(frozen=True)
class About:
    """Data, items and notes behind the figures of a set.

    Attributes:
        split: ``dev``, ``train`` or ``test``; ``all`` of a set without splits.
        data: Hash of its files.
        unit: What is counted, in the plural, such as ``queries``.
        count: Number of items of the figures that are not made of items; 0 if it is not known.
    """

    split: str
    data: str
    unit: str
    count: int = 0


@dataclass(frozen=True)
class Benchmark:
    """A suite whose files have been found and checked.

    Attributes:
        measure: Encodes and measures.
        notes: What is missing or was left out, one sentence each.
        sets: What the figures of a set are computed from, by its name.
        opens: Fingerprint of the test sets that are opened; empty if there are none.
        across: Whether the table has one column per set, as the papers print STS, or one line per set.
        digits: Decimal places in the table.
        itemised: Measures and also returns the items, to compare two models; None if no figure is made of
            items.
        searches: Whether queries search documents, so that another model may embed the documents.
        baselines: Names of sets whose figures are not the model's, such as those of TF-IDF.
    """

    measure: Callable[["FiniteEncoder"], "Figures"]
    notes: tuple[str, ...] = ()
    sets: Mapping[str, About] = field(default_factory=dict)
    opens: str = ""
    across: bool = True
    digits: int = 2
    itemised: Callable[["FiniteEncoder"], "Measured"] | None = None
    searches: bool = False
    baselines: tuple[str, ...] = ()

    def about(self, found: "Measured") -> dict[str, dict[str, Any]]:
        """Say what figures are computed from, by set: ``split``, ``data``, ``unit``, and ``items`` by figure.

        The sets ``toy`` and ``toy flat`` have the same data; ``Avg`` is of all sets, ``laser.avg`` of those
        whose names begin alike. Figures that are computed from no data are left out.
        """
        return {
            name: _about(known, figures, {kind: one.count for kind, one in found.items.get(name, {}).items()})
            for name, figures in found.figures.items()
            if (known := self._sets_of(name, averaged=name in found.items))
        }

    def _sets_of(self, name: str, *, averaged: bool) -> list[About]:
        if name in self.sets:
            return [self.sets[name]]
        for each, about in self.sets.items():
            if name.startswith((f"{each} ", f"{each}.")):
                return [about]
        start = name.rpartition(".")[0]
        return [about for each, about in self.sets.items() if averaged and each.startswith(start)]


class Suite(Protocol):
    """The contract of a suite, and so of every file in `benchmarks`.

    Attributes:
        NEEDS_DATA: Whether it reads published files from the data root.
        MTEB_TASKS: Names of mteb's tasks over the same sets; empty if the hub does not have the sets.
    """

    NEEDS_DATA: ClassVar[bool]
    MTEB_TASKS: ClassVar[tuple[str, ...]]

    def prepare(self, root: str, options: Options) -> Benchmark:
        """Find and check the suite's files under a data root.

        Raises:
            BadInput: If files are missing or malformed.
        """


def itemised(
    measure: Callable[["FiniteEncoder"], "Measured"], notes: tuple[str, ...] = (), **options: Any
) -> Benchmark:
    """Make a benchmark whose figures are made of items; ``options`` are further fields of `Benchmark`."""
    return Benchmark(lambda model: measure(model).figures, notes, itemised=measure, **options)


def titles_of(about: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The names of sets with their splits, for tables with one line per set."""
    return {name: f"{name} ({each['split']})" for name, each in about.items()}


def _about(known: list[About], figures: Iterable[str], counts: Mapping[str, int]) -> dict[str, Any]:
    items = {kind: counts.get(kind, known[0].count if len(known) == 1 else 0) for kind in figures}
    return {
        "split": " and ".join(dict.fromkeys(each.split for each in known)),
        "data": known[0].data if len(known) == 1 else fingerprint([each.data for each in known]),
        "unit": known[0].unit,
        "items": {kind: count for kind, count in items.items() if count},
    }


def hash_of(paths: Iterable[Path]) -> str:
    """Hash files, with their names and in their order."""
    return fingerprint([(path.name, sha256_of(path)) for path in paths])


def opened(options: Options, *data: object) -> str:
    """Return the fingerprint of the test sets that a suite opens; empty without ``final``."""
    return fingerprint(data) if options.final else ""


def missing(what: str, names: Iterable[str], folder: str) -> tuple[str, ...]:
    """Return a note that names missing files; empty if nothing is missing."""
    listed = ", ".join(names)
    return (f"no {what} {listed}: expected in {folder}",) if listed else ()
