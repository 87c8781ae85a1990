"""Batches for the loop, the next one made while this one trains."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

from stillhouse.core.distributed import rank, world_size
from stillhouse.core.errors import require
from stillhouse.core.types import Batch, IntArray
from stillhouse.plan.stage import Stage
from stillhouse.training.sampler import Order
from stillhouse.training.table import TrainingTable, on_device, pinned


def batches(stage: Stage, table: TrainingTable, device: str, first_step: int) -> Generator[Batch, None, None]:
    """This rank's micro-batches from a step on, `Stage.accumulate` of them a step.

    Every micro-batch is cut over the ranks in order, so that W ranks see together what one process would.
    """
    share = rank_share(stage)
    order = Order(len(table), stage.seed)
    on_gpu = device.startswith("cuda")

    def indices() -> Iterator[IntArray]:
        for step in range(first_step, stage.steps):
            whole = order.take(step * stage.batch_size, stage.batch_size)
            yield from whole.reshape(stage.accumulate, world_size(), share)[:, rank()]

    def collate(chosen: IntArray) -> Batch:
        return pinned(table.batch(chosen)) if on_gpu else table.batch(chosen)

    for batch in one_ahead(collate, indices()):
        yield on_device(batch, device)


def rank_share(stage: Stage) -> int:
    """Examples of one micro-batch on one rank.

    Raises:
        BadInput: The global batch cannot be cut evenly.
    """
    parts = stage.accumulate * world_size()
    require(
        stage.batch_size % parts == 0,
        "batch_size is a multiple of workers * accumulate",
        batch_size=stage.batch_size,
        workers=world_size(),
        accumulate=stage.accumulate,
    )
    return stage.batch_size // parts


def one_ahead(make: Callable[[IntArray], Batch], items: Iterator[IntArray]) -> Iterator[Batch]:
    """``map(make, items)``, the next result being made in a thread while the caller uses this one."""
    with ThreadPoolExecutor(1, thread_name_prefix="feed") as pool:
        ahead = None
        for item in items:
            ahead, ready = pool.submit(make, item), ahead
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()
