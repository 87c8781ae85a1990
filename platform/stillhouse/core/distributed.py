"""Ranks, and gathering with gradient. Every function also works in one process without a process group."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

_alone = False


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Run a block on this rank as if there were no others: nothing is gathered, and nobody waits."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def world_size() -> int:
    """The number of ranks, 1 without a process group and within `alone`."""
    return dist.get_world_size() if not _alone and dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's rank, 0 without a process group and within `alone`."""
    return dist.get_rank() if not _alone and dist.is_available() and dist.is_initialized() else 0


def end_rank() -> NoReturn:
    """Leave the process group and end the process, whose work is done, with exit code 0.

    Threads of gloo outlive the group; one that frees a tensor while Python ends aborts the process. So the
    process ends at once: nothing that waits for the end of the interpreter runs.
    """
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def gather(local: Tensor) -> Tensor:
    """Concatenate a tensor of every rank along the first dimension, in the order of the ranks.

    The gradient flows back to the rank that a row came from, summed over the ranks that used it. When every
    rank computes the same loss over the gathered batch and DDP averages the parameters' gradients, the result
    is the gradient that a single process would compute on the whole batch. A detached gather would give the
    same loss and a wrong gradient.

    Args:
        local: (B, ...), the same shape on every rank.

    Returns:
        (B * world size, ...).
    """
    return local if world_size() == 1 else _Gather.apply(local)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, local: Tensor) -> Tensor:
        parts = [torch.empty_like(local) for _ in range(world_size())]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> Tensor:
        summed = grads[0].contiguous()
        dist.all_reduce(summed)
        return summed.chunk(world_size())[rank()]
