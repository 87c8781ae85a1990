"""A Ray cluster of a benchmark's own: two CPUs, a folder of its own, gone when the block ends."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from harness import ROOT

from stillhouse.core.console import private_environment

PLATFORM = str(ROOT / "platform")


def environment() -> dict[str, str]:
    """Environment of a child process, which finds the platform and whose Ray uses its own folder."""
    paths = [PLATFORM, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def ray_folder() -> Iterator[str]:
    """A folder for Ray: a short name, since its sockets lie in it."""
    folder = tempfile.mkdtemp(prefix="shb", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def own_ray(cpus: int = 2, *, dashboard: bool = False) -> Iterator[float]:
    """Start Ray in this process, and end it; gives the seconds that the start took."""
    private_environment()
    os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with ray_folder() as folder:
        began = time.perf_counter()
        ray.init(address="local", num_cpus=cpus, include_dashboard=dashboard, _temp_dir=folder, **quiet)
        try:
            yield time.perf_counter() - began
        finally:
            ray.shutdown()
