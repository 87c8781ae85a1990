"""Models by name, and a model as an encoder in its own runtime.

A name is one of these, in this order: an ONNX file; the folder of a finished stage, of a sweep, or of an
export in any form; a stage's or a sweep's name in the workspace; a model that sentence-transformers loads. A
sweep stands for the student that it delivered.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from stillhouse.core.artifacts import MANIFEST, Workspace, read_manifest, sha256_of
from stillhouse.core.console import say, warn
from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.identity import fingerprint
from stillhouse.core.integrity import check_checksums
from stillhouse.core.model_folder import read_folder
from stillhouse.core.notes import EXPORT_NOTE, STAGES, SWEEPS, room_of, sound_note
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.core.types import ScoringObjective
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.asymmetric import is_router, open_router
from stillhouse.students.export.compact import is_compact, read_compact
from stillhouse.students.export.folder_modules import COMPACT, ONNX, ROUTED, STOCK, TOWERS
from stillhouse.students.export.onnx import OnnxEncoder, graph_of, is_onnx, stated_form
from stillhouse.students.export.sentence_transformers import is_stock
from stillhouse.students.export.tower_folders import is_towers
from stillhouse.students.head import check_published, head_remark, stated_by_user
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.weights import hash_model, model_parts, resolve_model
from stillhouse.training.checkpoint import load_weights
from stillhouse.training.fit import OBJECTIVE, STUDENT
from stillhouse.training.rebuild import class_of, rebuild
from stillhouse.training.scorer import with_scores
from stillhouse.training.tower_scorer import ExportedTowers
from stillhouse.training.watch import encoder_of
from stillhouse.values.data import Model
from stillhouse.values.stage import Stage

STAGE = "stage"
_STATE_IT = "`evaluate` takes --pooling ({}) and --normalize, `stillhouse.load` the same keywords: state them"
_AS_PUBLISHED = ("", None, 0, NO_PROMPTS)


def encoder_in(folder: Path, device: str = "cpu", *, as_trained: bool = False) -> Any:
    """Open the trained student of a finished stage as an encoder.

    If its objective gives scores, the encoder does too; a student that reads the texts of a pair jointly is a
    scorer only.

    Args:
        folder: The stage's folder.
        device: Device that it encodes on.
        as_trained: Whether its precision is that in which the stage was trained and measured on dev, instead
            of the full one.

    Raises:
        BadInput: The folder is not a finished stage.
    """
    manifest = read_manifest(folder)
    student: Any = rebuild(manifest["student"])
    load_weights(student, folder / STUDENT)
    prompts = Prompts(**manifest.get("prompts", {}))
    precision = manifest["plan"]["with"]["autocast"] if as_trained else "float32"
    encoder = encoder_of(student.eval(), manifest["max_length"], precision, device, prompts)
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


@dataclass(frozen=True)
class Source:
    """The model that a name stands for.

    Attributes:
        name: The name that the user gave.
        form: ``stage``, ``towers``, ``asymmetric``, or one of the formats of `students.export.formats`.
        path: The folder, or the ONNX file.
        model: The published model or the export for sentence-transformers, if it is one.
        stated: Whether the user, or the stage that it taught, stated its pooling, and its norm.
    """

    name: str
    form: str
    path: Path
    model: Model | None = None
    stated: tuple[bool, bool] = (False, False)

    @property
    def title(self) -> str:
        """The name with the form and the runtime."""
        runtime = "onnxruntime" if self.form.startswith(ONNX) else "torch"
        return f"{self.name} ({self.form}, {runtime})"

    @property
    def folder(self) -> Path:
        """The folder that holds the model's files."""
        return self.path if self.path.is_dir() else _home(self.path)

    def open(self, device: str = "cpu") -> Any:
        """Load the model as an encoder; of a head or of two towers also as a scorer.

        Raises:
            BadInput: If the stage is unfinished, or the folder cannot be loaded.
        """
        if self.form == STAGE:
            return encoder_in(self.path, device)
        if self.form.startswith(ONNX):
            if device != "cpu":
                warn(f"{self.name} runs on the CPU, not on {device}: so does every ONNX export here.")
            return OnnxEncoder(self.path)
        if self.form == COMPACT:
            student, max_length = read_compact(self.path)
            prompts = read_folder(self.path).prompts
            return StudentEncoder(student, self.path, max_length, device=device, prompts=prompts)
        if self.form == TOWERS:
            return ExportedTowers(self.path, device)
        if self.form == ROUTED:
            return open_router(self.path, device)
        assert self.model is not None
        pooling, normalize = self.stated
        if remark := head_remark(
            self.model, pooling_given=pooling, normalize_given=normalize, remedy=_STATE_IT
        ):
            say(f"  {remark}")
        return load_sentence_transformer(self.model, device)

    def identity(self) -> str:
        """Hash all that determines a vector.

        Raises:
            BadInput: If the stage is unfinished.
        """
        if self.form == STAGE:
            if not (self.path / MANIFEST).exists():
                raise BadInput(f"The stage must be finished, but {self.path} is not.")
            return sha256_of(self.path / MANIFEST)
        if self.model is not None:
            # The hash covers the prompts of the folder, but not that roles decide which of them is used.
            how = (self.model.pooling, self.model.normalize, self.model.dimension, prompts_of(self.model))
            return self.model.sha256 if how == _AS_PUBLISHED else f"{self.model.sha256} {fingerprint(how)}"
        hashed = hashlib.sha256(hash_model(self.folder).encode())
        for file in self._graphs():
            hashed.update(sha256_of(file).encode())
        return hashed.hexdigest()

    def megabytes(self) -> float | None:
        """Sum up the files that the runtime reads, in 10^6 bytes; None for a stage, which is not deployed."""
        if self.form == STAGE:
            return None
        return sum(file.stat().st_size for file in [*model_parts(self.folder), *self._graphs()]) / 1e6

    def _graphs(self) -> list[Path]:
        """The graph of an ONNX export, and its weights if they are in a second file."""
        if not self.form.startswith(ONNX):
            return []
        graph = self.path if self.path.is_file() else graph_of(self.path)
        assert graph is not None
        return [graph, *sorted(graph.parent.glob(f"{graph.name}[._]data"))]


def find_model(
    name: str, workspace: Workspace, *, pooling: str = "", normalize: bool | None = None
) -> Source:
    """Find out what a model's name stands for.

    Args:
        name: The name.
        workspace: Holds the stages and sweeps.
        pooling: The pooling of a published model whose folder states none; empty assumes one.
        normalize: Whether its vectors have length 1; None assumes that they do not.

    Raises:
        BadInput: If there is no such model, or a sweep that has not delivered a student; or a head is stated
            of a model that has its own.
    """
    found = _found(name, workspace)
    stated = (bool(pooling), normalize is not None)
    if not any(stated):
        return found
    require(
        found.model is not None,
        "--pooling and --normalize must be those of a published model",
        model=name,
        form=found.form,
        remedy="Leave them out: a student has its own head.",
    )
    assert found.model is not None
    return replace(found, model=stated_by_user(found.model, pooling, normalize), stated=stated)


def _found(name: str, workspace: Workspace) -> Source:
    path = Path(name).expanduser()
    if path.suffix == ".onnx" and path.is_file():
        check_checksums(_home(path))
        return Source(name, stated_form(path), path)
    if path.is_dir():
        check_checksums(path)
    form = form_of(path) if path.is_dir() else STOCK
    exported = form != STOCK or is_stock(path)
    stage = _stage_of(path, None if exported else workspace)
    if stage is not None:
        return Source(name, STAGE, stage)
    if form != STOCK:
        return Source(name, form, path)
    try:
        model = resolve_model(name)
    except BadInput as error:
        if path.is_dir() or not name.strip():
            raise
        raise BadInput(f"{error}{_near(name, workspace)}") from error
    check_published(model)
    return Source(name, STOCK, Path(model.path), model)


def open_model(name: str, workspace: Workspace, device: str = "cpu", **head: Any) -> Any:
    """Open an encoder by any name that a user may give it, in its own runtime; see `find_model`.

    Raises:
        BadInput: If there is no such model, or the stage is unfinished.
    """
    return find_model(name, workspace, **head).open(device)


def stage_folder(name: str, workspace: Workspace) -> Path | None:
    """Find the stage that trained the model of a name: the stage itself, or what a sweep delivered.

    The folder that a sweep exported stands for what it delivered; see `find_model`.

    Returns:
        The stage's folder; None for an export from elsewhere and for a published model.
    """
    path = Path(name).expanduser()
    if path.name == "export" and room_of(path.parent) == SWEEPS:
        return delivered(path.parent)
    exported = path.is_dir() and (form_of(path) != STOCK or is_stock(path))
    return _stage_of(path, None if exported else workspace)


def stages_among(names: Iterable[str], workspace: Workspace) -> dict[str, Path]:
    """The folders of those models that are stages, by the models' names."""
    folders = {name: stage_folder(name, workspace) for name in names}
    return {name: folder for name, folder in folders.items() if folder is not None}


def stage_of(name: str, workspace: Workspace) -> Path:
    """Find the folder of the trained stage that a name stands for: a stage's own, or a sweep's best student.

    Raises:
        BadInput: If there is no such stage or sweep; the message lists those with near names.
    """
    stage = _stage_of(Path(name).expanduser(), workspace)
    if stage is not None:
        return stage
    raise BadInput(
        f"`export` needs a finished stage's folder or name, or the name of a sweep, but got {name!r}."
        f"{_near(name, workspace)}"
    )


def delivered(sweep: Path) -> Path:
    """Find the folder of the stage that a sweep delivered, its best student.

    Raises:
        BadInput: If the sweep has not delivered a student.
    """
    note = sweep / EXPORT_NOTE
    if not note.is_file():
        raise BadInput(
            f"The sweep must have delivered its best student, but {sweep} has not. Run the same "
            "`stillhouse sweep` again, which resumes it, or give the folder of a stage."
        )
    content = sound_note(note)
    if content is None:
        raise BadInput(
            f"{note} must say which stage the sweep delivered, but it is damaged. Run the same `stillhouse "
            "sweep` again, which exports the student again, or give the folder of a stage."
        )
    stage = Path(content["stage"])
    # The workspace may have been moved since.
    return stage if room_of(stage) == STAGES else sweep.parent.parent / Stage.kind / stage.name


def form_of(folder: Path) -> str:
    """Say which form a folder has: one of `students.export.formats`, ``towers``, or ``asymmetric``."""
    if is_compact(folder):
        return COMPACT
    if is_towers(folder):
        return TOWERS
    if is_router(folder):
        return ROUTED
    if is_stock(folder) or not is_onnx(folder):
        return STOCK
    graph = graph_of(folder)
    return ONNX if graph is None else stated_form(graph)


def _stage_of(path: Path, workspace: Workspace | None) -> Path | None:
    """Find the stage of a path or of a name in the workspace; that of a sweep is what it delivered."""
    home = workspace.root if workspace else None
    if workspace is not None and len(path.parts) == 1:
        workspace.obtain(Stage.kind, path.name)
    for folder in (path, *([home / Stage.kind / path, home / SWEEPS / path] if home else [])):
        room = room_of(folder)
        if room:
            return folder if room == STAGES else delivered(folder)
    return None


def _home(graph: Path) -> Path:
    return graph.parent.parent if graph.parent.name == "onnx" else graph.parent


def _near(name: str, workspace: Workspace) -> str:
    """Suggest sweeps and stages of the workspace with near names."""
    known = [*_names(workspace.root / SWEEPS), *_names(workspace.root / Stage.kind)]
    return f" {nearest(Path(name).name, known)}" if known and name.strip() else ""


def _names(folder: Path) -> Iterable[str]:
    return (each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else ()
