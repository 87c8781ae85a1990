"""What a suite of published benchmarks is.

A suite is prepared before it is run: its files are read and checked while nothing has been encoded yet. Sets
with a dev and a test split are measured on dev; ``final`` opens the test splits. STS2017 has no other split
than test. Sets that were published as one whole (Tatoeba, Cranfield, MR, …) are measured either way.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.identity import fingerprint
from stillhouse.evaluation.benchmarks.retrieval_options import OnDisk
from stillhouse.evaluation.finite_encoder import Checked
from stillhouse.evaluation.items import Figures, Measured

__all__ = ["Benchmark", "Figures", "Options", "Suite", "itemised", "missing", "opened"]


@dataclass(frozen=True)
class Options:
    """How a suite is run.

    Attributes:
        final: Open the test splits.
        run: Where the rankings of ``retrieval`` are written in TREC form; None writes none.
        from_run: A run that ``retrieval`` measures in the place of a model.
        on_disk: Where ``retrieval`` keeps vectors, and what searches them; None keeps them in memory.
        candidates: C of ``fever``.
        fast: 5 folds in ``transfer`` in place of 10.
        onnx: Also the sizes as ONNX in ``cost``.
        figures: Where ``geometry`` draws; None draws nothing.
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
    """A suite whose files are there.

    Attributes:
        measure: Encodes and measures.
        notes: What is missing or was left out, a sentence each.
        opens: Fingerprint of the test sets that this opens; empty where there are none.
        across: Whether the table has a column a set, as the papers print STS, or a line a set.
        digits: Behind the point, in the table.
        itemised: Measures and tells the items too, for a comparison of two models; None where no figure is
            made of items.
    """

    measure: Callable[[Checked], Figures]
    notes: tuple[str, ...] = ()
    opens: str = ""
    across: bool = True
    digits: int = 2
    itemised: Callable[[Checked], Measured] | None = None


def itemised(measure: Callable[[Checked], Measured], notes: tuple[str, ...] = (), **how: Any) -> Benchmark:
    """A suite whose figures are made of items; the rest as `Benchmark` has it."""
    return Benchmark(lambda model: measure(model).figures, notes, itemised=measure, **how)


Suite = Callable[[str, Options], Benchmark]
"""From a data root and how it is run to a suite whose files are there."""


def opened(options: Options, *data: object) -> str:
    """The fingerprint of the test sets that a suite opens; empty without ``final``."""
    return fingerprint(data) if options.final else ""


def missing(what: str, names: Iterable[str], folder: str) -> tuple[str, ...]:
    """The note on what is not there, if anything is."""
    listed = ", ".join(names)
    return (f"no {what} {listed}: they would lie in {folder}",) if listed else ()
