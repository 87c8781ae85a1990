"""What ranks decide together, and the signals that ask a process to stop."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from stillhouse.core.distributed import rank, world_size

T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """The process was asked to stop; the run is checkpointed, and the same command goes on from there."""


def any_rank(device: str, *flags: bool) -> tuple[bool, ...]:
    """Each flag, True on every rank where it is True on any."""
    if world_size() == 1:
        return flags
    raised = torch.tensor([int(flag) for flag in flags], device=device)
    dist.all_reduce(raised, op=dist.ReduceOp.MAX)
    return tuple(bool(flag) for flag in raised.tolist())


def from_first(value: Any) -> Any:
    """Rank 0's value, on every rank. Also a barrier: nobody goes on before rank 0 is there."""
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def on_first(work: Callable[[], T]) -> T:
    """Do something on rank 0 alone: its result, or its error, is every rank's."""
    if world_size() == 1:
        return work()
    result, error = None, None
    if rank() == 0:
        try:
            result = work()
        except Exception as raised:
            error = raised
    agreed: tuple[T, Exception | None] = from_first((result, error))
    if agreed[1] is not None:
        raise agreed[1]
    return agreed[0]


def of_all(value: object) -> list[object]:
    """Every rank's value, in the order of the ranks."""
    if world_size() == 1:
        return [value]
    values: list[object] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into a flag, so that a step ends and a checkpoint is written.

    The second signal does what it would have done without this. In a thread other than the main one
    signals cannot be caught, and are left alone.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        restore()

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        restore()
