"""The loss of a stage on texts that are held out: how well the student follows its teacher on new text."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.distributed import alone
from stillhouse.core.types import Batch
from stillhouse.corpora.tokens import open_tokens
from stillhouse.students.encoder import evaluating
from stillhouse.teachers.store import open_vectors
from stillhouse.training.module import StudentAndObjective
from stillhouse.training.table import Reader, TrainingTable, on_device
from stillhouse.values.data import TokenTable
from stillhouse.values.stage import Stage

HELDOUT_LOSS = "heldout_loss"
"""Name of the figure."""
TEXTS = 512
"""Texts that are read at most, or one batch where that is larger."""
_FIRST_ROW = 1 << 40
"""Added to their row ids, which are those of another table than the ids of a memory bank."""


def held_out_tokens(stage: Stage, reader: Reader) -> TokenTable | None:
    """Return the tokens of a stage's held-out texts as a model reads them; None if the stage has none.

    A stage has some if its dev suite names them and it follows a teacher on a single column of texts.
    """
    followed = bool(stage.stores) or stage.live is not None
    single = len(stage.examples.columns) == 1 and not stage.examples.values
    if stage.dev is None or stage.dev.held_out is None or not (followed and single):
        return None
    (column,) = stage.examples.columns
    held_out = stage.dev.held_out
    return reader.tokens_of(held_out.texts, stage.examples.role(column), held_out.roles)


def open_held_out(
    workspace: Workspace, stage: Stage, student: Reader, live: Reader | None
) -> TrainingTable | None:
    """Open the held-out texts of a stage, which `training.local` has built; None if it has none."""
    tokens = held_out_tokens(stage, student)
    if tokens is None:
        return None
    assert stage.dev is not None and stage.dev.held_out is not None
    (column,) = stage.examples.columns
    vectors = open_vectors(workspace, stage.dev.held_out)
    stores = {column: vectors} if stage.stores else {}
    others = held_out_tokens(stage, live) if live is not None else None
    return TrainingTable(
        {column: vectors.rows},
        {column: open_tokens(workspace, tokens)},
        stores,
        live_tokens={column: open_tokens(workspace, others)} if others is not None else None,
    )


def held_out_loss(module: StudentAndObjective, stage: Stage, table: TrainingTable, device: str) -> float:
    """Compute the loss on held-out texts: the mean over batches of the stage's size.

    Nothing is dropped out and no memory bank is written, but it is read. With several ranks, one computes it.
    """
    with torch.no_grad(), evaluating(module), alone():
        losses = [
            float(torch.stack(list(module(on_device(batch, device)).values())).sum())
            for batch in _batches(table, stage.batch_size // stage.accumulate)
        ]
    return float(np.mean(losses))


def _batches(table: TrainingTable, size: int) -> Iterator[Batch]:
    """Yield whole batches of the first texts, or a single smaller one if there are fewer."""
    size = min(size, len(table))
    for start in range(0, min(len(table), max(size, TEXTS)) - size + 1, size):
        batch = table.batch(np.arange(start, start + size))
        yield replace(batch, rows={column: ids + _FIRST_ROW for column, ids in batch.rows.items()})
