"""Ray Data as this package uses it: errors as they were raised, nothing printed, arrays in Arrow's lists."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stillhouse.cluster.running import require_usable_gpu
from stillhouse.core.errors import mistake_in
from stillhouse.core.types import ValueArray

if TYPE_CHECKING:
    import pyarrow as pa

Part = Callable[[int], ValueArray]
"""Maps the first row of a part to the values of its rows."""


@dataclass(frozen=True)
class ModelPool:
    """Processes of Ray that run a model, each with its own device.

    Attributes:
        actors: The most processes.
        device: ``cpu``, or ``cuda`` for a GPU each.
        threads: Threads, and reserved CPUs, of each.
    """

    actors: int
    device: str
    threads: int

    def parts(self, opened: Callable[[str], Part], starts: list[int]) -> Iterator[tuple[int, ValueArray]]:
        """Make the parts that begin at some rows, and yield each when it is there.

        ``opened`` opens a model on a device, once in each process.
        """
        import ray.data
        import torch

        on_gpu = torch.device(self.device).type == "cuda"
        with streaming():
            items = [{"start": start} for start in starts]
            made = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
                _PartMaker,
                fn_constructor_args=(opened, self),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(self.actors, len(starts))),
                num_cpus=max(1, self.threads),
                num_gpus=int(on_gpu),
            )
            try:
                for batch in made.iter_batches(batch_size=1):
                    yield int(batch["start"][0]), batch["part"][0]
            except Exception as error:
                raise mistake_in(error) or error from None


class _PartMaker:
    def __init__(self, opened: Callable[[str], Part], pool: ModelPool) -> None:
        self._opened, self._pool = opened, pool

    @functools.cached_property
    def _part(self) -> Part:
        """The model, opened for the first part: Ray says of an error before it that the actor died."""
        import torch

        torch.set_num_threads(max(1, self._pool.threads))
        require_usable_gpu(self._pool.device)
        return self._opened(self._pool.device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        (start,) = batch["start"].tolist()
        return {"start": [start], "part": [self._part(start)]}


@contextlib.contextmanager
def streaming(*, in_order: bool = False) -> Iterator[None]:
    """Stream datasets that are made and read within the block, on request in the order of their inputs."""
    import ray.data

    context = ray.data.DataContext.get_current().copy()
    context.execution_no_progress_timeout_s = -1  # Nodes are awaited for as long as it takes.
    context.execution_options.preserve_order = in_order
    context.max_errored_blocks = 0
    # Otherwise a worker's error would arrive as text inside another exception.
    context.raise_original_map_exception = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with ray.data.DataContext.current(context), _quiet():
        yield


def as_list(values: Any) -> "pa.ListArray":
    """Return an array as a column of one row, which holds all of its values."""
    import pyarrow as pa

    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))


def from_list(batch: "pa.Table", column: str) -> Any:
    """Return the array that `as_list` made the only row of a column."""
    return batch[column].combine_chunks().flatten().to_numpy()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's messages in its log file; errors are raised, and reported once."""
    handlers = [h for h in logging.getLogger("ray.data").handlers if type(h).__name__ == "PlainRayHandler"]
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
