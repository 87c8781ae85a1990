"""A small Ray cluster of a test's own, in a folder with a short name."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import stillhouse


@contextlib.contextmanager
def local_ray(cpus: int) -> Iterator[Path]:
    """Start Ray with so many CPUs, yield its folder, and end it."""
    import ray

    with tempfile.TemporaryDirectory(prefix="sh", dir="/tmp") as short:
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=80_000_000,
            _temp_dir=short,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": str(Path(stillhouse.__file__).parents[1])}},
        )
        try:
            yield Path(short)
        finally:
            ray.shutdown()
