"""Does a student live in its teacher's space? Only then may its queries search the teacher's documents.

A stage that learns from its teacher's vectors says so by its objective (`Objective.why_outside`). A stage
that continues with labelled text alone starts from such vectors and moves away from them slowly, so it counts
as the stage before it did, unless it changes the student.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec
from stillhouse.core.roles import Prompts
from stillhouse.teachers.weights import on_this_machine
from stillhouse.training.facts import read_facts
from stillhouse.training.learning_curve import folder_before
from stillhouse.training.rebuild import rebuild
from stillhouse.values.data import Model
from stillhouse.values.stage import Stage

REMEDY = (
    "Train a student that follows its teacher's vectors: leaf, or mse or ckd with keep_projection=true, and "
    "without a projection that is added later."
)

DRIFTS = (
    "note: its last stage learnt from labelled text alone, which moves a student away from its teacher; the "
    "stage before it may be closer"
)


@dataclass(frozen=True)
class TeacherSpace:
    """The teacher whose space a trained student lives in.

    Attributes:
        teacher: The teacher, with its head and its prompts.
        drifts: Whether the last stage learns from labelled text alone, and so moves away from the teacher.
    """

    teacher: Model
    drifts: bool


def space_of(folder: Path, named: Model | None = None) -> TeacherSpace:
    """Find the teacher in whose space the student of a finished stage lives.

    Args:
        folder: The stage.
        named: The model that the user takes for the teacher; None takes the one that the stage names.

    Raises:
        BadInput: The stage is not finished, its student lives in a space of its own, with the reason, or the
            named model is not its teacher.
    """
    followed = folder
    manifest: Mapping[str, Any] = read_manifest(folder)
    student: Any = rebuild(manifest["student"])
    while not _reads_teacher(manifest["plan"]["with"]):
        followed, manifest = _stage_before(folder, followed, manifest)
    dims = {"student_dim": student.dim, "teacher_dim": manifest["teacher_dim"]}
    objective: Any = rebuild(manifest["objective"], **dims)
    reason = why_not_same(**dims) or objective.why_outside()
    if reason:
        raise _outside(folder.name, reason)
    teacher = _teacher_of(followed, manifest["plan"]["with"], named)
    return TeacherSpace(teacher, drifts=followed != folder)


def own_teacher(folder: Path) -> Model:
    """The published teacher of a finished stage, with its head and its prompts.

    Raises:
        BadInput: The stage is not finished, or neither it nor one before it follows a single published model.
    """
    followed: Path | None = folder
    manifest: Mapping[str, Any] = read_manifest(folder)
    while followed is not None and not _reads_teacher(manifest["plan"]["with"]):
        followed = folder_before(followed, manifest)
        manifest = manifest if followed is None else read_manifest(followed)
    plan = manifest["plan"]["with"]
    several = any(_has_several(store) for store in plan["stores"].values())
    identity = None if followed is None or several else _published_teacher(plan)
    require(
        identity is not None,
        "`teacher` must stand for one published model that the stage follows",
        stage=folder.name,
        remedy="Name a model or its folder.",
    )
    assert followed is not None and identity is not None
    return _model_of(followed, identity)


def check_plan(plan: Stage, teacher_dim: int) -> None:
    """Refuse a plan with a dev figure of asymmetric search for a student that is outside its teacher's space.

    Raises:
        BadInput: A stage of the plan trains such a student; with the reason.
    """
    for stage in plan.chain():
        if stage.dev is not None and (reason := why_outside(stage, teacher_dim)):
            raise _outside(f"the stage {stage.label}", reason)


def why_outside(stage: Stage, teacher_dim: int) -> str:
    """Say why the student of a planned stage will not live in its teacher's space; empty if it will."""
    followed = stage
    while not (followed.stores or followed.live):
        before = followed.start_from
        if before is None:
            return _NO_TEACHER
        if before.student != stage.student:
            return _CHANGED
        followed = before
    dims = {"student_dim": dim_of(followed.student), "teacher_dim": teacher_dim}
    return why_not_same(**dims) or followed.objective.build(**dims).why_outside()


def dim_of(student: Spec[Any]) -> int:
    """The dimension of a student's vectors; each student is built once per process."""
    # By the printed form, not by the fingerprint, which does not cover paths.
    if (key := repr(student)) not in _DIMS:
        _DIMS[key] = student.build().dim
    return _DIMS[key]


_DIMS: dict[str, int] = {}
_NO_TEACHER = "it follows no teacher"
SEVERAL = "it follows several teachers at once, none of which embeds documents alone"
_CHANGED = "a layer was added to it after it had followed its teacher"


def why_not_same(student_dim: int, teacher_dim: int) -> str:
    """Say that two dimensions differ; empty if they do not."""
    if student_dim == teacher_dim:
        return ""
    return f"its vectors have {student_dim} dimensions and its teacher's {teacher_dim}"


def _outside(what: str, reason: str) -> BadInput:
    return BadInput(
        f"asymmetric search needs a student whose vectors are in its teacher's space, but that of {what} is "
        f"not: {reason}. {REMEDY}"
    )


def _reads_teacher(plan: Mapping[str, Any]) -> bool:
    return bool(plan["stores"] or plan["live"])


def _stage_before(
    folder: Path, followed: Path, manifest: Mapping[str, Any]
) -> tuple[Path, Mapping[str, Any]]:
    """Open the stage that a stage without a teacher continues."""
    before = manifest["plan"]["with"]["start_from"]
    if before is None:
        raise _outside(folder.name, _NO_TEACHER)
    if before["with"]["student"] != manifest["plan"]["with"]["student"]:
        raise _outside(folder.name, _CHANGED)
    found = folder_before(followed, manifest)
    assert found is not None
    return found, read_manifest(found)


def _teacher_of(folder: Path, plan: Mapping[str, Any], named: Model | None) -> Model:
    """The published teacher of a stage, or the named one where the stage's has no weights to compare it with.

    Raises:
        BadInput: There is none, or the named one is another.
    """
    if any(_has_several(store) for store in plan["stores"].values()):
        raise _outside(folder.name, SEVERAL)
    identity = _published_teacher(plan)
    if identity is not None:
        return _model_of(folder, identity) if named is None else _same_model(folder, identity, named)
    if named is None:
        raise _unpublished(folder, plan)
    return named


def _published_teacher(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Find the published model that a stage's plan names as the teacher: its hash and its head.

    None where the teacher is a stage, or is known by its vectors alone.
    """
    models = (part["with"] for part in _teachers(plan) if part["value"] == "Model")
    return next((dict(model) for model in models), None)


def _unpublished(folder: Path, plan: Mapping[str, Any]) -> BadInput:
    """The error for a teacher that must be named."""
    outside = ("VectorFiles", "Endpoint")
    elsewhere = any(part["value"] in outside for part in _teachers(plan))
    what = "is known by its vectors alone" if elsewhere else "was trained here"
    return BadInput(
        "asymmetric search needs a published teacher that embeds documents, but that of "
        f"{folder.name} {what}. Name {'the model' if elsewhere else 'its export'} with --documents-by FOLDER."
    )


def _teachers(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for store in plan["stores"].values():
        yield from _teachers_of(store)
    if plan["live"]:
        live = plan["live"]["with"]
        yield live["start_from"] or live["model"]["with"]["base"]


def _teachers_of(store: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The teacher of a store, of several sources, or the teachers that teach as one."""
    values = store["with"]
    if "parts" in values:
        yield from _teachers_of(values["parts"][0])
    elif "members" in values:
        yield from (member["with"]["teacher"] for member in values["members"])
    else:
        yield values["teacher"]


def _has_several(store: Mapping[str, Any]) -> bool:
    """Return whether the vectors of a store, or of several sources, are those of several teachers."""
    return "members" in store["with"].get("parts", [store])[0]["with"]


def _model_of(folder: Path, identity: Mapping[str, Any]) -> Model:
    """The teacher that a stage's folder names, with its prompts.

    Raises:
        BadInput: The folder does not name it, or its weights are not found.
    """
    known = read_facts(folder).get("teacher_models", {}).get(identity["sha256"])
    if known is None:
        raise BadInput(
            f"the stage's folder must name its teacher, but {folder} was written before that was recorded. "
            "Name the teacher with --documents-by NAME."
        )
    prompts = known.get("prompts")
    return on_this_machine(Model(**{**known, "prompts": prompts and Prompts(**prompts)}))


def _same_model(folder: Path, identity: Mapping[str, Any], named: Model) -> Model:
    """The named model with the head and the prompts that the stage's teacher had.

    Raises:
        BadInput: It has other weights.
    """
    known = read_facts(folder).get("teacher_models", {}).get(identity["sha256"], {})
    require(
        named.sha256 == identity["sha256"],
        "--documents-by must name the teacher that the student was trained with",
        documents_by=named.name,
        teacher=known.get("name") or identity["sha256"][:16],
        remedy="--documents-by teacher stands for it.",
    )
    prompts = known.get("prompts")
    return replace(named, **identity, prompts=prompts and Prompts(**prompts))
