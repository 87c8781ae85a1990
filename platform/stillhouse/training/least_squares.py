"""The layer that a student keeps, started as the least-squares map from its vectors to the teacher's."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from stillhouse.cluster.leases import make_once
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec
from stillhouse.core.roles import Prompts
from stillhouse.students.encoder import evaluating
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.training.checkpoint import save_weights
from stillhouse.training.module import build_student, tower_of
from stillhouse.training.table import TrainingTable, open_table, student_reader
from stillhouse.values.data import AnyStore, Examples, Named
from stillhouse.values.stage import Stage

FILE = "layer.safetensors"
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""λ that are tried, as shares of the mean eigenvalue of XᵀX."""
AT_ONCE = 64
"""Texts per forward pass."""


@dataclass(frozen=True)
class FirstLayer(Named):
    """The kept layer of an untrained student, fitted to its teacher: an artifact that trials share."""

    kind: ClassVar[str] = "layers"
    version: ClassVar[int] = 1
    label: ClassVar[str] = "least-squares"
    student: Spec[Any]
    seed: int
    examples: Examples
    stores: Mapping[str, AnyStore]
    texts: int
    max_length: int
    prompts: Prompts


def first_layer(stage: Stage) -> FirstLayer | None:
    """Return the artifact that the student of a plan's first stage starts from; None without one."""
    if not stage.least_squares:
        return None
    read = (stage.examples, stage.stores, stage.least_squares, stage.max_length, stage.prompts)
    return FirstLayer(stage.student, stage.seed, *read)


def check_first_layer(plan: Stage) -> None:
    """Refuse a fitted layer for a plan without a student that keeps one.

    Raises:
        BadInput: No stage has such a student.
    """
    require(
        any(stage.least_squares for stage in plan.chain()),
        "budget.least_squares must have a student that keeps a layer into its teacher's space",
        stages=[stage.label for stage in plan.chain()],
        remedy="Take leaf, or --set keep_projection=true with mse, ckd or ibkd; or leave the field out.",
    )


def build_first_layer(stage: Stage, workspace: Workspace, *, device: str) -> None:
    """Fit the first layer of a stage whose inputs are built, unless it exists or the stage has none.

    Raises:
        BadInput: There are fewer texts than the student has dimensions.
    """
    if (value := first_layer(stage)) is None:
        return

    def make(folder: Path) -> dict[str, Any]:
        table = open_table(workspace, stage, student_reader(stage, tokenizer_of(stage)))
        student_NH, teacher_NE = _pairs(stage, table, device)
        weight_EH, facts = fitted(student_NH, teacher_NE)
        save_weights(folder / FILE, {"weight": weight_EH})
        say(
            f"  last layer: least squares on {len(student_NH):,} texts, mean cosine to the teacher "
            f"{facts['cosine']:.3f} on a tenth of them that was held out"
        )
        return facts

    make_once(workspace, value, make)


def started(stage: Stage, workspace: Workspace) -> Path | None:
    """Return the file of a stage's first layer; None without one."""
    value = first_layer(stage)
    return None if value is None else workspace.path(value) / FILE


def fitted(student_NH: Tensor, teacher_NE: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Fit W that minimises ‖X Wᵀ − T‖² + λ ‖W‖²; λ has the highest mean cosine on a tenth of the rows.

    Args:
        student_NH: X, the student's vectors before the layer.
        teacher_NE: T, the teacher's vectors.

    Returns:
        W, (E, H) in float32, and ``ridge``, ``cosine`` on the tenth, ``rows``.

    Raises:
        BadInput: There are fewer rows than columns of X.
    """
    rows, width = student_NH.shape
    if rows <= width:
        raise BadInput(
            f"`least_squares > {width}` must hold, the width of the student's vectors, but got {rows:,} "
            "texts. Raise budget.least_squares or give more text, or leave it at 0."
        )
    x_NH, t_NE = student_NH.double(), teacher_NE.double()
    kept = rows - max(1, rows // 10)

    def products(until: int) -> tuple[Tensor, Tensor]:
        return x_NH[:until].T @ x_NH[:until], x_NH[:until].T @ t_NE[:until]

    def solve(gram_HH: Tensor, cross_HE: Tensor, ridge: float) -> Tensor:
        added_HH = ridge * gram_HH.diagonal().mean() * torch.eye(width, dtype=torch.float64)
        solved_HE: Tensor = torch.linalg.solve(gram_HH + added_HH, cross_HE)
        return solved_HE

    of_kept = products(kept)
    cosines = {
        ridge: float(cosine_similarity(x_NH[kept:] @ solve(*of_kept, ridge), t_NE[kept:]).mean())
        for ridge in RIDGES
    }
    best = max(cosines, key=lambda ridge: cosines[ridge])
    return solve(*products(rows), best).T.float(), {"ridge": best, "cosine": cosines[best], "rows": rows}


def _pairs(stage: Stage, table: TrainingTable, device: str) -> tuple[Tensor, Tensor]:
    """Encode a sample of the texts up to the layer: the student's vectors (N, H), the teacher's (N, E)."""
    column, store = next(iter(table.stores.items()))
    student = build_student(stage).to(device)
    tower = tower_of(student, column)
    batches = list(table.sampled(column, stage.least_squares, AT_ONCE, stage.seed))
    rows = np.concatenate(batches)
    order = np.random.default_rng(stage.seed).permutation(len(rows))
    progress, found = Progress("fitting the last layer", "texts"), []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(inputs[0].float().cpu())

    tower.projection.register_forward_pre_hook(keep)
    with torch.no_grad(), evaluating(student):
        for batch in batches:
            tower(table.tokens[column].padded(batch).to(device))
            progress(sum(map(len, found)), len(rows))
    return torch.cat(found)[order], torch.from_numpy(store.gather(rows[order]))
