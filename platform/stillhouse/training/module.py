"""Student and objective as one module, which DDP wraps, the optimiser updates and a checkpoint stores."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stillhouse.core.distributed import world_size
from stillhouse.core.tensors import read_tensors
from stillhouse.core.types import Batch, Encoding, LazyStates, PairModel, SidedModel, Terms, Tokens
from stillhouse.students import pooling
from stillhouse.students.transformer import load_weights
from stillhouse.training.checkpoint import seed_everything
from stillhouse.training.grouped import encode_grouped
from stillhouse.values.stage import Stage


class StudentAndObjective(nn.Module):
    """One forward pass: every column through the student, then the objective's terms.

    Both are wrapped by DDP as one, since otherwise W and the heads of the objective would not be
    synchronised.

    Args:
        student: Maps tokens to `Encoding`.
        objective: Maps encodings to terms, in full precision whatever precision the student computes in.
        autocast: ``float32`` or ``bfloat16``.
        live: A frozen teacher, which maps the tokens of every column to `Encoding`.

    Attributes:
        watching: Whether the next pass also computes the objective's diagnostics.
        readings: The diagnostics of the last such pass.
    """

    objective: Any

    def __init__(
        self,
        student: nn.Module,
        objective: nn.Module,
        autocast: str = "float32",
        live: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.student, self.objective, self.autocast = student, objective, autocast
        self.live = live.requires_grad_(False).eval() if live is not None else None
        self.watching = False
        self.readings: dict[str, float] = {}

    def forward(self, batch: Batch) -> Terms:
        """Compute the weighted terms of a batch."""
        device = next(iter(batch.rows.values())).device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self.autocast == "bfloat16"):
            student = self._student_output(batch)
            teacher = batch.teacher
            if self.live is not None:
                with torch.no_grad():
                    tokens = batch.live_tokens or batch.tokens
                    teacher = {column: _encoded(self.live, tokens[column]) for column in tokens}
        if self.watching:
            with torch.no_grad():
                self.readings = self.objective.diagnostics(student)
        terms: Terms = self.objective(student, teacher, batch)
        return terms

    def _student_output(self, batch: Batch) -> dict[str, Encoding]:
        """Encode each column with the student, or score the columns that it reads jointly."""
        if isinstance(self.student, PairModel):
            read = (batch.tokens[column] for column in self.student.joint_columns)
            return {"scores": Encoding(self.student(*read).float())}
        return {
            column: _encoded(tower_of(self.student, column), tokens)
            for column, tokens in batch.tokens.items()
        }

    def train(self, mode: bool = True) -> "StudentAndObjective":
        """Set the training mode; a live teacher stays in evaluation mode."""
        super().train(mode)
        if self.live is not None:
            self.live.eval()
        return self


def tower_of(student: Any, column: str) -> Any:
    """Return the part of a student that encodes a column: all of it, unless it has separate towers."""
    return student.tower(column) if isinstance(student, SidedModel) else student


def build_student(stage: Stage, layer: Path | None = None) -> nn.Module:
    """Build the student of a stage with its initial weights; new weights are drawn from the stage's seed.

    Its kept layer is read from a file, where that is fitted; see `training.least_squares`.
    """
    seed_everything(stage.seed)
    student: Any = stage.student.build()
    if layer is not None:
        student.projection.load_state_dict(read_tensors(layer))
    return student  # type: ignore[no-any-return]


def build_module(
    stage: Stage,
    teacher_dim: int | None,
    first_weights: Path | None,
    live_weights: Path | None = None,
    first_objective: Path | None = None,
    first_layer: Path | None = None,
) -> StudentAndObjective:
    """Build student, objective and live teacher as they are before the first step; the files are as in `fit`.

    The dimension is that of the stored teacher vectors; None where no teacher is stored.
    """
    live: Any = None if stage.live is None else stage.live.model.build()
    if live is not None and live_weights is not None:
        load_weights(live, live_weights)
    student = build_student(stage, first_layer)
    if first_weights is not None:
        load_weights(student, first_weights)
    known = {"student_dim": student.dim}
    if live is not None:
        teacher_dim = live.dim
    objective = stage.objective.build(**known | ({} if teacher_dim is None else {"teacher_dim": teacher_dim}))
    if live is not None:
        objective.fit_layers(student, live)
    if first_objective is not None:
        load_weights(objective, first_objective)
    return StudentAndObjective(student, objective, stage.autocast, live)


def distributed(module: StudentAndObjective) -> nn.Module:
    """Wrap the module in DDP; with one process it is returned unchanged.

    Buffers are not broadcast: those of an objective (a memory bank) are functions of gathered tensors, and
    hence equal on every rank already.
    """
    if world_size() == 1:
        return module
    with warnings.catch_warnings():
        # Its successor, `forward_sync_buffers`, is missing in the oldest supported torch.
        warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
        return DistributedDataParallel(
            module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
        )


def _encoded(model: nn.Module, tokens: Tokens) -> Encoding:
    """Encode a batch in whatever precision a model computes in, and return full precision."""
    encoding = encode_grouped(model, tokens)
    states = encoding.hidden
    hidden: Sequence[Tensor] = ()
    if states:
        hidden = LazyStates(
            len(states), lambda layer: states[layer].float(), lambda layer: pooling.mean_of(encoding, layer)
        )
    return Encoding(encoding.embedding_BD.float(), hidden, encoding.mask_BT)
