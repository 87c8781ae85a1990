"""Opening trained students, and other models by any name that a user may give them."""

from pathlib import Path
from typing import Any

from torch import nn

from stillhouse.core.artifacts import (
    MANIFEST,
    Workspace,
    read_manifest,
    sha256_of,
)
from stillhouse.core.errors import BadInput
from stillhouse.core.types import ScoringObjective
from stillhouse.plan.stage import Stage
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.checkpoint import load_weights
from stillhouse.training.fit import OBJECTIVE, STUDENT
from stillhouse.training.rebuild import class_of, rebuild
from stillhouse.training.scorer import with_scores
from stillhouse.training.watch import encoder_of

PLAN = "plan.json"
"""The file that a stage's folder holds from the start."""


def encoder_in(folder: Path, device: str = "cpu") -> Any:
    """Open the trained student of a finished stage as an encoder in full precision.

    If its objective gives scores, the encoder does too; a student that reads the texts of a pair jointly is a
    scorer only.

    Raises:
        BadInput: The folder is not a finished stage.
    """
    manifest = read_manifest(folder)
    student: Any = rebuild(manifest["student"])
    load_weights(student, folder / STUDENT)
    encoder = encoder_of(student.eval(), manifest["max_length"], "float32", device)
    objective = _objective_in(folder, manifest, student.dim)
    return encoder if objective is None else with_scores(encoder, objective, manifest["columns"])


def _objective_in(folder: Path, manifest: dict[str, Any], student_dim: int) -> nn.Module | None:
    """Open the trained objective if it gives scores; otherwise return None."""
    if "objective" not in manifest or not issubclass(class_of(manifest["objective"]), ScoringObjective):
        return None
    dims = {"student_dim": student_dim} | (
        {} if manifest["teacher_dim"] is None else {"teacher_dim": manifest["teacher_dim"]}
    )
    objective = rebuild(manifest["objective"], **dims)
    load_weights(objective, folder / OBJECTIVE)
    return objective.eval()


def stage_folder(name: str, workspace: Workspace) -> Path | None:
    """Find the stage that a user names by its folder or its name in the workspace; None if there is none."""
    folders = (Path(name), workspace.root / Stage.kind / name)
    return next((folder for folder in folders if (folder / PLAN).exists()), None)


def open_model(name: str, workspace: Workspace, device: str = "cpu") -> Any:
    """Open an encoder by any name that a user may give it.

    Args:
        name: The folder of a finished stage, its name in the workspace, or anything that
            sentence-transformers loads: the teacher's name, an exported folder, a model of the hub.
        workspace: Holds the stages.
        device: Device that it encodes on.

    Raises:
        BadInput: If there is no such model, or the stage is unfinished.
    """
    folder = stage_folder(name, workspace)
    if folder is not None:
        return encoder_in(folder, device)
    return load_sentence_transformer(resolve_model(name), device)


def identity_of(name: str, workspace: Workspace) -> str:
    """Hash the weights that `open_model` would open under this name.

    Raises:
        BadInput: If there is no such model, or the stage is unfinished.
    """
    folder = stage_folder(name, workspace)
    if folder is not None:
        if not (folder / MANIFEST).exists():
            raise BadInput(f"The stage must be finished, but {folder} is not.")
        return sha256_of(folder / MANIFEST)
    return resolve_model(name).sha256
