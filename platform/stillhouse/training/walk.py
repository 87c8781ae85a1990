"""Run a plan: walk its stages, skip the finished, build what is missing, train the rest."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stillhouse.core.artifacts import (
    MANIFEST,
    Workspace,
    locked,
    read_manifest,
    remove_leftovers,
    sha256_of,
    write_json,
)
from stillhouse.core.devices import is_here, resolve_device, usable_device
from stillhouse.core.errors import require
from stillhouse.core.identity import canonical
from stillhouse.core.types import ScoringObjective
from stillhouse.plan.stage import Stage
from stillhouse.training.checkpoint import load_weights
from stillhouse.training.fit import OBJECTIVE, STUDENT, Listen
from stillhouse.training.local import fit_here, prepare
from stillhouse.training.progress import Evaluation, Stopped
from stillhouse.training.rebuild import class_of, rebuild
from stillhouse.training.scorer import with_scores
from stillhouse.training.watch import encoder_of

PLAN = "plan.json"
"""What a stage's folder holds from the start."""


@dataclass(frozen=True)
class Where:
    """Where a plan runs; no part of what it computes.

    Attributes:
        device: ``auto`` (what the machine has), ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
        threads: CPU threads of each training process; 0 leaves torch's own choice.
        workers: Training processes. More than one run under Ray Train where Ray is running, else as plain
            processes of this machine.
        checkpoint_seconds: The longest time between two checkpoints.
        search: A pool of actors that dev evaluators search with; None searches in the process.
        max_failures: Lost workers that Ray Train replaces before it gives up.
    """

    device: str = "auto"
    threads: int = 0
    workers: int = 1
    checkpoint_seconds: float = 60.0
    search: Any = None
    max_failures: int = 3

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.workers >= 1, "workers >= 1", workers=self.workers)
        require(self.threads >= 0, "threads >= 0", threads=self.threads)


def run(
    stage: Stage, workspace: Workspace, *, where: Where, listen: Callable[[Evaluation], bool] | None = None
) -> Path:
    """Run a plan to its end.

    A finished stage is not run again: its curve is replayed. When two processes need the same stage, one
    runs it and the other waits; when the first is stopped, the second goes on from its checkpoint.

    Args:
        stage: The last stage of the plan.
        workspace: Where everything is found and put.
        where: Device, threads, workers.
        listen: Told of every evaluation of the stages that have a dev suite, ``examples`` counted from the
            first stage on; True asks for an early end.

    Returns:
        The folder of the last stage.

    Raises:
        Diverged: A loss is not finite, or a student collapsed.
        Stopped: ``listen`` asked for it.
        Interrupted: A signal asked for it.
    """
    if where.threads:
        torch.set_num_threads(where.threads)
    before = 0
    for part in stage.chain():
        _run_one(part, workspace, where, _shifted(listen, before, last=part is stage))
        before += part.steps * part.batch_size
    return workspace.path(stage)


def encoder_in(folder: Path, device: str = "cpu") -> Any:
    """The trained student in the folder of a finished stage, as an encoder in full precision.

    Where its objective gives scores, the encoder does too; a student that reads the texts of a pair together
    is a scorer alone.

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
    """The trained objective where it gives scores, else None."""
    if "objective" not in manifest or not issubclass(class_of(manifest["objective"]), ScoringObjective):
        return None
    dims = {"student_dim": student_dim} | (
        {} if manifest["teacher_dim"] is None else {"teacher_dim": manifest["teacher_dim"]}
    )
    objective = rebuild(manifest["objective"], **dims)
    load_weights(objective, folder / OBJECTIVE)
    return objective.eval()


def open_model(name: str, workspace: Workspace, device: str = "cpu") -> Any:
    """An encoder by any name that a person may give it.

    Args:
        name: The folder of a finished stage, or its name in the workspace; else whatever
            sentence-transformers loads: the teacher's name, an exported folder, a model of the hub.
        workspace: Where stages are looked for.
        device: Where it encodes.

    Raises:
        BadInput: There is no such model, or the stage is unfinished.
    """
    for folder in (Path(name), workspace.root / Stage.kind / name):
        if (folder / PLAN).exists():
            return encoder_in(folder, device)
    from stillhouse.teachers.weights import load_sentence_transformer, resolve_model

    return load_sentence_transformer(resolve_model(name), device)


def identity_of(name: str, workspace: Workspace) -> str:
    """A hash that is another where `open_model` of this name would open other weights.

    Raises:
        BadInput: There is no such model, or the stage is unfinished.
    """
    for folder in (Path(name), workspace.root / Stage.kind / name):
        if (folder / PLAN).exists():
            require((folder / MANIFEST).exists(), "the stage is finished", folder=str(folder))
            return sha256_of(folder / MANIFEST)
    from stillhouse.teachers.weights import resolve_model

    return resolve_model(name).sha256


def _run_one(stage: Stage, workspace: Workspace, where: Where, listen: Listen | None) -> None:
    folder = workspace.path(stage)
    if not workspace.finished(stage):
        with locked(folder.with_suffix(".lock")):
            if not workspace.finished(stage):
                remove_leftovers(folder)
                write_json(folder / PLAN, canonical(stage))
                _train(stage, workspace, where, listen)
                return
    _replay(stage, folder, listen)


def _train(stage: Stage, workspace: Workspace, where: Where, listen: Listen | None) -> None:
    device = resolve_device(where.device)
    prepare(stage, workspace, device=usable_device(device), threads=where.threads or torch.get_num_threads())
    if where.workers == 1 and is_here(device):
        fit_here(stage, workspace, where, device=device, listen=listen)
    else:
        from stillhouse.training.worker import fit_with_workers

        fit_with_workers(stage, workspace, where, device=device, listen=listen)


def _replay(stage: Stage, folder: Path, listen: Listen | None) -> None:
    curve = [
        Evaluation(stage.label, point["step"], point["examples"], point["metrics"])
        for point in read_manifest(folder)["evaluations"]
        if point["metrics"]
    ]
    for index, evaluation in enumerate(curve):
        final = index == len(curve) - 1
        if listen is not None and listen(replace(evaluation, final=final)):
            raise Stopped(f"{stage.label} was stopped early, after {evaluation.examples} examples.")


def _shifted(listen: Listen | None, before: int, *, last: bool) -> Listen | None:
    """Count examples from the first stage on; at the very end there is nothing left to stop."""
    if listen is None:
        return None

    def shifted(evaluation: Evaluation) -> bool:
        final = evaluation.final and last
        seen = before + evaluation.examples
        return listen(replace(evaluation, examples=seen, final=final)) and not final

    return shifted
