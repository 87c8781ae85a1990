"""Batches for the training loop, the next one prepared while the current one trains."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from stillhouse.core.distributed import rank, world_size
from stillhouse.core.errors import require
from stillhouse.core.types import Batch, IntArray
from stillhouse.training.batching import Batching
from stillhouse.training.table import TrainingTable, on_device, pinned
from stillhouse.values.stage import TEXTS_TOGETHER, Stage

T = TypeVar("T")


def batches(
    stage: Stage, table: TrainingTable, device: str, first_step: int, batching: Batching | None = None
) -> Generator[Batch, None, None]:
    """Iterate over this rank's micro-batches from a step on, `Stage.accumulate` of them per step.

    Every micro-batch is split over the ranks in order, so that W ranks together see what one process would.
    """
    check_shares(stage)
    made = batching or Batching(stage, table)
    on_gpu = device.startswith("cuda")

    def indices() -> Iterator[tuple[IntArray | None, IntArray]]:
        for step in range(first_step, made.steps):
            ahead = made.ahead(step)
            for chosen in made.rows(step).reshape(stage.accumulate, world_size(), -1)[:, rank()]:
                yield ahead, chosen

    def collate(item: tuple[IntArray | None, IntArray]) -> Batch:
        ahead, chosen = item
        if ahead is not None:
            table.expect(ahead)
        return pinned(table.batch(chosen)) if on_gpu else table.batch(chosen)

    for batch in prefetched(collate, indices()):
        yield on_device(batch, device)


def check_shares(stage: Stage) -> None:
    """Refuse a global batch that cannot be divided evenly over micro-batches and ranks.

    Raises:
        BadInput: It cannot be divided.
    """
    workers, accumulate = world_size(), stage.accumulate
    if stage.batch_tokens:
        even = TEXTS_TOGETHER % (workers * accumulate) == 0
        rule = f"{TEXTS_TOGETHER} % (workers * accumulate) = 0 with batch_tokens"
        require(even, rule, workers=workers, accumulate=accumulate)
    else:
        size = stage.batch_size
        even = size % (workers * accumulate) == 0
        rule = "batch_size % (workers * accumulate) = 0"
        require(even, rule, batch_size=size, workers=workers, accumulate=accumulate)


def prefetched(make: Callable[[T], Batch], items: Iterator[T]) -> Iterator[Batch]:
    """Compute ``map(make, items)``, the next result in a thread while the caller uses the current one."""
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        ahead = None
        for item in items:
            ahead, ready = pool.submit(make, item), ahead
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()
