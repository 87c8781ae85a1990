"""Decisions that all ranks share, and the signals that stop a process."""

import contextlib
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from stillhouse.core.distributed import rank, world_size

T = TypeVar("T")

_FOR_EVER = timedelta(days=7)
"""Longer than any rank works while the others wait; poll(2) takes at most 24 days."""
_meetings = itertools.count()


class Interrupted(KeyboardInterrupt):
    """The process was told to stop; the run is checkpointed, and the same command continues from there."""


def any_rank(device: str, *flags: bool) -> tuple[bool, ...]:
    """Combine flags over the ranks: each is True on every rank if it is True on any."""
    if world_size() == 1:
        return flags
    raised = torch.tensor([int(flag) for flag in flags], device=device)
    dist.all_reduce(raised, op=dist.ReduceOp.MAX)
    return tuple(bool(flag) for flag in raised.tolist())


def rank0_value(value: Any) -> Any:
    """Return rank 0's value on every rank. It is also a barrier: no rank continues before rank 0 arrives."""
    if world_size() == 1:
        return value
    _meet()
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def _meet() -> None:
    """Wait for all ranks, however long one of them evaluates or fetches.

    They do not wait in a collective, whose limit is there to notice ranks that hang.
    """
    store, number = dist.distributed_c10d._get_default_store(), next(_meetings)
    store.set(f"met-{number}-{rank()}", "")
    store.wait([f"met-{number}-{each}" for each in range(world_size())], _FOR_EVER)


def on_rank0(work: Callable[[], T]) -> T:
    """Run a function on rank 0 alone, and return its result or raise its error on every rank."""
    if world_size() == 1:
        return work()
    result, error = None, None
    if rank() == 0:
        try:
            result = work()
        except Exception as raised:
            error = raised
    agreed: tuple[T, Exception | None] = rank0_value((result, error))
    if agreed[1] is not None:
        raise agreed[1]
    return agreed[0]


def from_all_ranks(value: object) -> list[object]:
    """Return the values of all ranks, in the order of the ranks."""
    if world_size() == 1:
        return [value]
    values: list[object] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into a flag, so that a step ends and a checkpoint is written.

    The second signal has its usual effect. Outside the main thread signals cannot be caught, and are left
    alone.
    """
    signalled = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(_number: int, _frame: FrameType | None) -> None:
        signalled.set()
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield signalled
    finally:
        restore()
