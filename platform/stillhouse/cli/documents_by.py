"""`stillhouse evaluate MODEL --documents-by TEACHER`: documents by the teacher, queries by the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say, show
from stillhouse.core.errors import require
from stillhouse.evaluation.asymmetric_search import (
    AsymmetricEncoder,
    Beside,
    KeptDocuments,
    beside,
)
from stillhouse.evaluation.benchmark import Benchmark
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.items import Measured
from stillhouse.reports.layout import table_lines
from stillhouse.training.models import Source


@dataclass
class DocumentsByTeacher:
    """The teacher of a command with `--documents-by`, and what is measured with its documents.

    A document is encoded once. ``found`` has the figures side by side, by suite, set and name.
    """

    source: Source
    teacher: FiniteEncoder
    documents: KeptDocuments
    found: dict[str, dict[str, dict[str, Beside]]] = field(default_factory=dict)

    @classmethod
    def opened(cls, source: Source, workspace: Workspace, device: str) -> "DocumentsByTeacher":
        """Open the teacher."""
        identity = f"{source.identity()} {device}"
        teacher = FiniteEncoder(source.open(device), identity, source.title)
        return cls(source, teacher, KeptDocuments(teacher, identity, workspace))

    def measure(self, name: str, benchmark: Benchmark, model: FiniteEncoder) -> tuple[Measured, Measured]:
        """Measure the teacher's queries and the model's on a suite, among the teacher's documents."""
        say(f"{name}: measuring {self.teacher.title}")
        theirs = self._measured(benchmark, self.teacher)
        say(f"{name}: measuring {model.title} among its documents")
        return theirs, self._measured(benchmark, model)

    def show(
        self,
        name: str,
        benchmark: Benchmark,
        model: FiniteEncoder,
        measured: tuple[Measured, Measured],
        own: Measured,
    ) -> None:
        """Print what `measure` returned beside the figures of the model alone."""
        theirs, ours = measured
        names = {
            found: [figure for figure in figures if figure in own.items.get(found, figures)]
            for found, figures in ours.figures.items()
            if (found in own.items or not own.items) and found not in benchmark.baselines
        }
        self.found[name] = beside(theirs.figures, own.figures, ours.figures, names)
        show_beside(name, self.found[name], self.source.title, model.title, benchmark.digits)

    def _measured(self, benchmark: Benchmark, queries: FiniteEncoder) -> Measured:
        both = FiniteEncoder(AsymmetricEncoder(queries, self.documents), self.teacher.identity)
        return measured_on(benchmark, both)

    def finish(self, *, keep: bool) -> dict[str, Any]:
        """Say how often documents were encoded, and return what `--json` writes."""
        encoded = self.documents.encoded
        said = f"{encoded:,} encoded, each once" if encoded else "none encoded: their vectors were kept"
        say(
            f"documents by {self.source.title}: {said}"
            + ("" if keep else "; now removed (--keep-vectors leaves them for the next command)")
        )
        if not keep:
            self.documents.remove()
        return {**report_of(self.source, self.found), "documents_encoded": encoded}


def measured_on(benchmark: Benchmark, model: FiniteEncoder) -> Measured:
    """Measure a model on a suite, with the figures of its items where the suite has them."""
    if benchmark.itemised is not None:
        return benchmark.itemised(model)
    return Measured(benchmark.measure(model), {})


def check_searches(prepared: Mapping[str, Benchmark]) -> None:
    """Refuse `--documents-by` with suites in which nothing is searched.

    Raises:
        BadInput: There is such a suite.
    """
    others = [name for name, benchmark in prepared.items() if not benchmark.searches]
    require(
        not others,
        "--documents-by must go with suites whose queries search documents: retrieval, fever, mteb:TASK",
        suites=others,
        remedy="Measure the other suites with a command of their own.",
    )


def show_beside(
    name: str, found: Mapping[str, Mapping[str, Beside]], teacher: str, student: str, digits: int
) -> None:
    """Print one line per figure: teacher, student alone with its share, and with the teacher's documents."""
    header = ["set", "figure", "teacher", "student", "kept", "asymmetric", "kept"]
    cells = [
        [
            found_in,
            figure,
            f"{one.teacher:.{digits}f}",
            f"{one.symmetric:.{digits}f}",
            _share(one.symmetric_share),
            f"{one.asymmetric:.{digits}f}",
            _share(one.asymmetric_share),
        ]
        for found_in, figures in found.items()
        for figure, one in figures.items()
    ]
    show()
    show(f"{name}: documents by {teacher}, queries by {student} (asymmetric); kept is the teacher's share")
    for line in table_lines(header, cells, {0, 1}, key=2):
        show(line)


def report_of(source: Source, found: Mapping[str, Mapping[str, Mapping[str, Beside]]]) -> dict[str, Any]:
    """The figures side by side as `--json` writes them."""
    return {
        "model": source.name,
        "title": source.title,
        "suites": {
            suite: {
                found_in: {figure: one.report() for figure, one in figures.items()}
                for found_in, figures in sets.items()
            }
            for suite, sets in found.items()
        },
    }


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
