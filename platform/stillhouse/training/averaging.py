"""Gradients averaged over ranks; of a word table only the rows that a batch used travel.

A batch of 64 sentences uses about a thousand of the 30 522 rows of a vocabulary; the others' gradients are
zero. Sent whole, they are two thirds of what three layers of 384 dimensions send.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from stillhouse.distributed import parts_of_all

LEAST_SAVED = 4
"""Rows travel where all ranks' together are fewer than a quarter of the table's."""
LEAST_VALUES = 1_000_000
"""Smaller tables are sent whole."""

Hook = Callable[[None, GradBucket], Future[Tensor]]


def average_used_rows(wrapped: DistributedDataParallel) -> None:
    """Let DDP send used rows for large embedding tables, and all else as before.

    Only under gloo: a GPU's links are quicker than finding out which rows were used.
    """
    if dist.get_backend() != "gloo":
        return
    group = dist.group.WORLD
    assert group is not None, "there is a process group"
    embeddings = [part.weight for part in wrapped.modules() if isinstance(part, nn.Embedding)]
    tables = {weight.data_ptr() for weight in embeddings if weight.numel() >= LEAST_VALUES}

    def hook(_: None, bucket: GradBucket) -> Future[Tensor]:
        pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
        found = [gradient for parameter, gradient in pairs if parameter.data_ptr() in tables]
        if not found:
            return allreduce_hook(group, bucket)
        _average_around(bucket.buffer(), found)
        done: Future[Tensor] = Future()
        done.set_result(bucket.buffer())
        return done

    wrapped.register_comm_hook(None, hook)


def _average_around(buffer: Tensor, tables: list[Tensor]) -> None:
    """Average a bucket that holds tables among other gradients; the others travel meanwhile."""
    edges = [buffer.storage_offset()]
    for table in tables:
        edges += [table.storage_offset(), table.storage_offset() + table.numel()]
    edges = [edge - edges[0] for edge in [*edges, buffer.storage_offset() + buffer.numel()]]
    others = [buffer[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True) if stop > start]
    sent = [dist.all_reduce(part, async_op=True) for part in others]
    for table in tables:
        average_rows_(table)
    for part, work in zip(others, sent, strict=True):
        work.wait()
        part.div_(dist.get_world_size())


def average_rows_(gradient_NH: Tensor) -> None:
    """The mean over the ranks, in place; every rank adds them up in the same order, and has the same bits.

    Args:
        gradient_NH: This rank's; most rows are zero.
    """
    # By far the quickest way to find the rows that are not all zeros; NaN is not zero.
    used = ((gradient_NH.amax(dim=1) != 0) | (gradient_NH.amin(dim=1) != 0)).nonzero().flatten()
    ranks = dist.get_world_size()
    counts = parts_of_all(torch.tensor([len(used)]))
    most = int(max(counts))
    if int(sum(counts)) * LEAST_SAVED > len(gradient_NH):
        dist.all_reduce(gradient_NH)
        gradient_NH.div_(ranks)
        return
    padding = (0, most - len(used))
    rows = parts_of_all(nn.functional.pad(used, padding))
    values = parts_of_all(nn.functional.pad(gradient_NH[used] / ranks, (0, 0, *padding)))
    gradient_NH.index_fill_(0, used, 0.0)
    for count, row, value in zip(counts, rows, values, strict=True):
        gradient_NH.index_add_(0, row[: int(count)], value[: int(count)])
