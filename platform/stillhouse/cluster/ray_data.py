"""Ray Data as this package uses it: errors as they were raised, nothing printed, arrays in Arrow's lists."""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


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
