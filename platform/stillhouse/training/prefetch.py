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
    rank_share(stage)
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


def rank_share(stage: Stage) -> int:
    """Return the number of examples of one micro-batch on one rank; with ``batch_tokens``, the smallest one.

    Raises:
        BadInput: The global batch cannot be divided evenly.
    """
    parts = stage.accumulate * world_size()
    require(
        not stage.batch_tokens or TEXTS_TOGETHER % parts == 0,
        f"{TEXTS_TOGETHER} % (workers * accumulate) = 0 with batch_tokens",
        workers=world_size(),
        accumulate=stage.accumulate,
    )
    if stage.batch_tokens:
        return TEXTS_TOGETHER // parts
    require(
        stage.batch_size % parts == 0,
        "batch_size % (workers * accumulate) = 0",
        batch_size=stage.batch_size,
        workers=world_size(),
        accumulate=stage.accumulate,
    )
    return stage.batch_size // parts


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
