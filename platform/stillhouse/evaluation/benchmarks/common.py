"""What a suite of published benchmarks is.

A suite is prepared before it is run: its files are read and checked while nothing has been encoded yet. Sets
with a dev and a test split are measured on dev; ``final`` opens the test splits. STS2017 has no other split
than test. Sets that were published as one whole (Tatoeba, Cranfield, MR, …) are measured either way.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from stillhouse.evaluation.checked import Checked
from stillhouse.evaluation.retrieval_suite import OnDisk
from stillhouse.spec import fingerprint

Figures = dict[str, dict[str, float]]
"""Set to figure to value."""


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
    """

    measure: Callable[[Checked], Figures]
    notes: tuple[str, ...] = ()
    opens: str = ""
    across: bool = True
    digits: int = 2


Suite = Callable[[str, Options], Benchmark]
"""From a data root and how it is run to a suite whose files are there."""


def opened(options: Options, *data: object) -> str:
    """The fingerprint of the test sets that a suite opens; empty without ``final``."""
    return fingerprint(data) if options.final else ""


def missing(what: str, names: Iterable[str], folder: str) -> tuple[str, ...]:
    """The note on what is not there, if anything is."""
    listed = ", ".join(names)
    return (f"no {what} {listed}: they would lie in {folder}",) if listed else ()
