"""`stillhouse evaluate MODEL --documents-by TEACHER`: documents by the teacher, queries by the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.roles import ASYMMETRIC
from stillhouse.core.types import Encoder
from stillhouse.evaluation.asymmetric import (
    AsymmetricEncoder,
    Beside,
    KeptDocuments,
    beside,
)
from stillhouse.evaluation.benchmark import Benchmark
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.items import Measured
from stillhouse.evaluation.suites import run_asymmetric
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.teacher import PromptChoice, TeacherChoice
from stillhouse.plan.data import Model
from stillhouse.plan.stage import DevSuite, TestSuite
from stillhouse.reports.tables import aligned
from stillhouse.students.export.modules import STOCK
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import Source, find_model, stage_folder
from stillhouse.training.teacher_space import DRIFTS, space_of

TEACHER = "teacher"
"""What stands for a stage's own teacher."""
_UNKNOWN = (
    "note: how {name} was trained is not known here, only that the dimensions are equal; the figures show "
    "whether it shares the space of {teacher}"
)


def documents_source(name: str, model: str, workspace: Workspace) -> Source:
    """Find the model that embeds the documents.

    Args:
        name: ``teacher``, or the name or the path of a model.
        model: Name of the model that embeds the queries.
        workspace: Holds the stages.

    Raises:
        BadInput: There is no such model, or the queries' model does not live in its space.
    """
    folder = stage_folder(model, workspace)
    if folder is None:
        require(
            name != TEACHER,
            "--documents-by teacher must go with a stage or a sweep, whose teacher is known",
            model=model,
            remedy="Name the teacher: --documents-by NAME.",
        )
        found = find_model(name, workspace)
        say(_UNKNOWN.format(name=model, teacher=found.name))
        return found
    named = None if name == TEACHER else resolve_model(name)
    space = space_of(folder, named)
    teacher = space.teacher
    if space.drifts:
        say(DRIFTS)
    return Source(teacher.name or teacher.path, STOCK, Path(teacher.path), teacher)


def taught_by(experiment: Experiment, source: Source) -> Experiment:
    """The experiment with the documents' model as its teacher, whose vectors of the passages are searched.

    Raises:
        BadInput: The experiment has no queries, or the model is not one that embeds as a teacher.
    """
    require(
        ASYMMETRIC in experiment.selectable(),
        "--documents-by must go with data that is searched: pydocs, a collection, or --suite retrieval",
        source=experiment.source.key,
    )
    if source.model is None:
        raise BadInput(
            f"--documents-by must name a model that sentence-transformers loads, but {source.name} is a "
            f"{source.form}. Export the stage, and name the folder."
        )
    selection = replace(experiment.selection, by=ASYMMETRIC)
    given = experiment.teacher
    if given.is_model and given.published().sha256 == source.model.sha256:
        return replace(experiment, selection=selection)
    return replace(experiment, selection=selection, teacher=_choice(source.model))


def _choice(model: Model) -> TeacherChoice:
    prompts = PromptChoice() if model.prompts is None else PromptChoice(**vars(model.prompts))
    return TeacherChoice(
        model.path,
        pooling=model.pooling,
        normalize=model.normalize,
        dimension=model.dimension,
        prompts=prompts,
    )


@dataclass
class DocumentsByTeacher:
    """The teacher of a command with `--documents-by`, and what is measured with its documents.

    Attributes:
        source: The teacher.
        teacher: The teacher as an encoder.
        documents: Its documents, each encoded once.
        found: Figures side by side, by suite, set and name.
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

    def measure(self, benchmark: Benchmark, model: FiniteEncoder) -> tuple[Measured, Measured]:
        """Measure the teacher's queries and the model's on a suite, among the teacher's documents."""
        return self._measured(benchmark, self.teacher), self._measured(benchmark, model)

    def show(
        self,
        name: str,
        benchmark: Benchmark,
        model: FiniteEncoder,
        measured: tuple[Measured, Measured],
        own: Measured,
    ) -> None:
        """Print the figures side by side.

        Args:
            name: The suite.
            benchmark: The suite.
            model: Encodes the queries.
            measured: What `measure` returned.
            own: The figures of the model alone.
        """
        theirs, ours = measured
        names = {
            found: [figure for figure in figures if figure in own.items.get(found, figures)]
            for found, figures in ours.figures.items()
            if found in own.items or not own.items
        }
        self.found[name] = beside(theirs.figures, own.figures, ours.figures, names)
        show(name, self.found[name], self.source.title, model.title, benchmark.digits)

    def _measured(self, benchmark: Benchmark, queries: FiniteEncoder) -> Measured:
        both = FiniteEncoder(AsymmetricEncoder(queries, self.documents), self.teacher.identity)
        if benchmark.itemised is not None:
            return benchmark.itemised(both)
        return Measured(benchmark.measure(both), {})

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


def beside_teacher(
    suite: DevSuite | TestSuite, teacher: Encoder, figures: Mapping[str, float], workspace: Workspace
) -> dict[str, Beside]:
    """Put the asymmetric figures of an experiment's suite beside the symmetric ones and the teacher's.

    The teacher's queries search its stored documents, so no document is encoded.

    Args:
        suite: The suite that was measured.
        teacher: Encodes queries.
        figures: The model's figures.
        workspace: Holds the collections and stores.
    """
    found = {}
    for name, value in run_asymmetric(suite, teacher, workspace).items():
        symmetric = name.replace(f"_{ASYMMETRIC}_", "_")
        found[symmetric] = Beside(value, figures[symmetric], figures[name])
    return found


def show(
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
    say()
    say(f"{name}: documents by {teacher}, queries by {student} (asymmetric); kept is the teacher's share")
    for line in aligned(header, cells, left={0, 1}):
        say(line)


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
