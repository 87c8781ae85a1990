"""Asymmetric evaluation: which teacher embeds the documents, and what is measured among them."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.roles import ASYMMETRIC
from stillhouse.core.types import Encoder
from stillhouse.evaluation.asymmetric_search import Beside
from stillhouse.evaluation.suites import run_asymmetric
from stillhouse.experiments.experiment import Experiment
from stillhouse.students.export.folder_modules import STOCK
from stillhouse.teachers.choice import PromptChoice, TeacherChoice
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import Source, find_model, stage_folder
from stillhouse.training.teacher_space import DRIFTS, own_teacher, space_of
from stillhouse.values.data import Model
from stillhouse.values.stage import DevSuite, TestSuite

TEACHER = "teacher"
"""What stands for a stage's own teacher."""
_UNKNOWN = (
    "note: how {name} was trained is not known here, only that the dimensions are equal; the figures show "
    "whether it shares the space of {teacher}"
)


def documents_source(name: str, model: str, workspace: Workspace) -> Source:
    """Find the model that embeds the documents beside a model that embeds the queries.

    ``name`` is ``teacher``, or the name or the path of a model.

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
    if space.drifts:
        say(DRIFTS)
    return _as_taught(space.teacher)


def other_model(name: str, model: str, workspace: Workspace) -> Source:
    """Find the model that another one, which is measured, is compared with.

    ``teacher`` stands for the stage's own, and so does the name of that, with its head.

    Raises:
        BadInput: There is no such model, or ``teacher`` is asked for of what is no stage.
    """
    folder = stage_folder(model, workspace)
    if name == TEACHER:
        require(
            folder is not None,
            "--against teacher must go with a stage or a sweep, whose teacher is known",
            model=model,
            remedy="Name the teacher: --against NAME.",
        )
        assert folder is not None
        return _as_taught(own_teacher(folder))
    found = find_model(name, workspace)
    if folder is not None and found.model is not None:
        with contextlib.suppress(BadInput):  # It has several teachers, or none that is published.
            if (teacher := own_teacher(folder)).sha256 == found.model.sha256:
                return _as_taught(teacher)
    return found


def _as_taught(teacher: Model) -> Source:
    return Source(teacher.name or teacher.path, STOCK, Path(teacher.path), teacher, (True, True))


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
    if given.is_model and given.finder.published().sha256 == source.model.sha256:
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


def beside_teacher(
    suite: DevSuite | TestSuite, teacher: Encoder, figures: Mapping[str, float], workspace: Workspace
) -> dict[str, Beside]:
    """Put the asymmetric figures of an experiment's suite beside the symmetric ones and the teacher's.

    The teacher's queries search its stored documents, so no document is encoded.
    """
    found = {}
    for name, value in run_asymmetric(suite, teacher, workspace).items():
        symmetric = name.replace(f"_{ASYMMETRIC}_", "_")
        found[symmetric] = Beside(value, figures[symmetric], figures[name])
    return found
