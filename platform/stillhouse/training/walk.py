"""Run a plan: walk its stages, skip the finished ones, build their missing inputs, and train the rest."""

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
from stillhouse.core.devices import has_device, resolve_device, usable_device
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import canonical
from stillhouse.core.types import ScoringObjective
from stillhouse.plan.stage import Stage
from stillhouse.training.checkpoint import load_weights
from stillhouse.training.fit import OBJECTIVE, STUDENT, OnEvaluation
from stillhouse.training.local import fit_here, prepare
from stillhouse.training.progress import Evaluation, Stopped
from stillhouse.training.rebuild import class_of, rebuild
from stillhouse.training.scorer import with_scores
from stillhouse.training.watch import encoder_of

PLAN = "plan.json"
"""The file that a stage's folder holds from the start."""


@dataclass(frozen=True)
class Where:
    """Where a plan runs, which does not affect what it computes.

    Attributes:
        device: ``auto`` (whatever the machine has), ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
        threads: CPU threads per training process; 0 keeps torch's own choice.
        workers: Number of training processes. Several run under Ray Train if Ray is running, otherwise as
            plain processes on this machine.
        checkpoint_seconds: Maximum time between two checkpoints in seconds.
        search: A pool of actors that dev evaluators search with; None searches in the process.
        max_failures: Number of lost workers that Ray Train replaces before it gives up.
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
    stage: Stage,
    workspace: Workspace,
    *,
    where: Where,
    on_evaluation: Callable[[Evaluation], bool] | None = None,
) -> Path:
    """Run a plan to its end.

    A finished stage is not run again: its curve is replayed. If two processes need the same stage, one runs
    it and the other waits; if the first is stopped, the second continues from its checkpoint.

    Args:
        stage: The last stage of the plan.
        workspace: Holds all inputs and results.
        where: Device, threads, workers.
        on_evaluation: Called with every evaluation of the stages that have a dev suite, ``examples`` counted
            from the first stage on; returning True requests an early end.

    Returns:
        The folder of the last stage.

    Raises:
        Diverged: A loss is not finite, or a student collapsed.
        Stopped: ``on_evaluation`` requested it.
        Interrupted: A signal ended the run.
    """
    if where.threads:
        torch.set_num_threads(where.threads)
    before = 0
    for part in stage.chain():
        _run_one(part, workspace, where, _shifted(on_evaluation, before, last=part is stage))
        before += part.steps * part.batch_size
    return workspace.path(stage)


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
    for folder in (Path(name), workspace.root / Stage.kind / name):
        if (folder / PLAN).exists():
            return encoder_in(folder, device)
    from stillhouse.teachers.weights import load_sentence_transformer, resolve_model

    return load_sentence_transformer(resolve_model(name), device)


def identity_of(name: str, workspace: Workspace) -> str:
    """Hash the weights that `open_model` would open under this name.

    Raises:
        BadInput: If there is no such model, or the stage is unfinished.
    """
    for folder in (Path(name), workspace.root / Stage.kind / name):
        if (folder / PLAN).exists():
            if not (folder / MANIFEST).exists():
                raise BadInput(f"The stage must be finished, but {folder} is not.")
            return sha256_of(folder / MANIFEST)
    from stillhouse.teachers.weights import resolve_model

    return resolve_model(name).sha256


def _run_one(stage: Stage, workspace: Workspace, where: Where, on_evaluation: OnEvaluation | None) -> None:
    folder = workspace.path(stage)
    if not workspace.finished(stage):
        with locked(folder.with_suffix(".lock")):
            if not workspace.finished(stage):
                remove_leftovers(folder)
                write_json(folder / PLAN, canonical(stage))
                _train(stage, workspace, where, on_evaluation)
                return
    _replay(stage, folder, on_evaluation)


def _train(stage: Stage, workspace: Workspace, where: Where, on_evaluation: OnEvaluation | None) -> None:
    device = resolve_device(where.device)
    prepare(stage, workspace, device=usable_device(device), threads=where.threads or torch.get_num_threads())
    if where.workers == 1 and has_device(device):
        fit_here(stage, workspace, where, device=device, on_evaluation=on_evaluation)
    else:
        from stillhouse.training.worker import fit_with_workers

        fit_with_workers(stage, workspace, where, device=device, on_evaluation=on_evaluation)


def _replay(stage: Stage, folder: Path, on_evaluation: OnEvaluation | None) -> None:
    curve = [
        Evaluation(stage.label, point["step"], point["examples"], point["metrics"])
        for point in read_manifest(folder)["evaluations"]
        if point["metrics"]
    ]
    for index, evaluation in enumerate(curve):
        final = index == len(curve) - 1
        if on_evaluation is not None and on_evaluation(replace(evaluation, final=final)):
            raise Stopped(f"{stage.label} was stopped early, after {evaluation.examples} examples.")


def _shifted(on_evaluation: OnEvaluation | None, before: int, *, last: bool) -> OnEvaluation | None:
    """Count examples from the first stage on; after the last evaluation there is nothing left to stop."""
    if on_evaluation is None:
        return None

    def shifted(evaluation: Evaluation) -> bool:
        final = evaluation.final and last
        seen = before + evaluation.examples
        return on_evaluation(replace(evaluation, examples=seen, final=final)) and not final

    return shifted
