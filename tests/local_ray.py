"""A small Ray cluster of a test's own, in a folder with a short name."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import stillhouse


@contextlib.contextmanager
def local_ray(cpus: int, *modules: Path, gpus: int = 0) -> Iterator[Path]:
    """Start Ray with so many CPUs and modules in these folders, yield its own folder, and end it.

    Its GPUs are only claimed: tasks that ask for them run on the CPU.
    """
    import ray

    paths = os.pathsep.join(map(str, (*modules, Path(stillhouse.__file__).parents[1])))

    with tempfile.TemporaryDirectory(prefix="sh", dir="/tmp") as short:
        ray.init(
            address="local",
            num_cpus=cpus,
            num_gpus=gpus,
            include_dashboard=False,
            object_store_memory=80_000_000,
            _temp_dir=short,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
        )
        try:
            yield Path(short)
        finally:
            ray.shutdown()
