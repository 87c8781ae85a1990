"""The contract of a suite of published benchmarks; the suites themselves are the files of `benchmarks`.

A suite is prepared before it is run: its files are read and checked before anything is encoded. Sets with a
dev and a test split are measured on dev; ``final`` opens the test splits. STS2017 has a test split only. Sets
that were published as a whole (Tatoeba, Cranfield, MR, …) are measured in both cases.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stillhouse.core.artifacts import Workspace
from stillhouse.core.identity import fingerprint

if TYPE_CHECKING:
    from stillhouse.evaluation.finite_encoder import FiniteEncoder
    from stillhouse.evaluation.items import Figures, Measured
    from stillhouse.evaluation.search.indexes import IndexChoice


@dataclass(frozen=True)
class OnDisk:
    """Where passage vectors are kept, and what searches them.

    Attributes:
        workspace: Vectors are kept in its folder ``vectors`` while a collection is measured.
        actors: Ray actors of the exact search; 1 searches in this process.
        indexes: FAISS indexes to measure beside exact search.
        keep: Keep the vectors for the next command.
    """

    workspace: Workspace
    actors: int = 1
    indexes: tuple["IndexChoice", ...] = ()
    keep: bool = False


@dataclass(frozen=True)
class Options:
    """How a suite is run.

    Attributes:
        final: Open the test splits.
        run: File that the rankings of ``retrieval`` are written to in TREC format; None writes none.
        from_run: A run that ``retrieval`` measures instead of a model.
        on_disk: Where ``retrieval`` keeps vectors, and what searches them; None keeps them in memory.
        candidates: Candidate documents per claim of ``fever`` (C).
        fast: Use 5 folds instead of 10 in ``transfer``.
        onnx: Also measure the ONNX sizes in ``cost``.
        figures: Folder for the plots of ``geometry``; None draws nothing.
    """

    final: bool = False
    run: Path | None = None
    from_run: Path | None = None
    on_disk: OnDisk | None = None
    candidates: int = 10
    fast: bool = False
    onnx: bool = False
    figures: Path | None = None


@dataclass(frozen=True)
class Benchmark:
    """A suite whose files have been found and checked.

    Attributes:
        measure: Encodes and measures.
        notes: What is missing or was left out, one sentence each.
        opens: Fingerprint of the test sets that are opened; empty if there are none.
        across: Whether the table has one column per set, as the papers print STS, or one line per set.
        digits: Decimal places in the table.
        itemised: Measures and also returns the items, to compare two models; None if no figure is made of
            items.
    """

    measure: Callable[["FiniteEncoder"], "Figures"]
    notes: tuple[str, ...] = ()
    opens: str = ""
    across: bool = True
    digits: int = 2
    itemised: Callable[["FiniteEncoder"], "Measured"] | None = None


class Suite(Protocol):
    """The contract of a suite, and so of every file in `benchmarks`."""

    @property
    def NEEDS_DATA(self) -> bool:
        """Whether it reads published files from the data root."""
        ...

    @property
    def MTEB_TASKS(self) -> tuple[str, ...]:
        """Names of mteb's tasks over the same sets; empty if the hub does not have the sets."""
        ...

    def prepare(self, root: str, options: Options) -> Benchmark:
        """Find and check the suite's files under a data root.

        Raises:
            BadInput: If files are missing or malformed.
        """
        ...


def itemised(
    measure: Callable[["FiniteEncoder"], "Measured"], notes: tuple[str, ...] = (), **options: Any
) -> Benchmark:
    """Make a benchmark whose figures are made of items; ``options`` are further fields of `Benchmark`."""
    return Benchmark(lambda model: measure(model).figures, notes, itemised=measure, **options)


def opened(options: Options, *data: object) -> str:
    """Return the fingerprint of the test sets that a suite opens; empty without ``final``."""
    return fingerprint(data) if options.final else ""


def missing(what: str, names: Iterable[str], folder: str) -> tuple[str, ...]:
    """Return a note that names missing files; empty if nothing is missing."""
    listed = ", ".join(names)
    return (f"no {what} {listed}: expected in {folder}",) if listed else ()
