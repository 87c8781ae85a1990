"""The machine that a measurement runs on, and how busy it is."""

import os
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def describe_machine(threads: int) -> dict[str, object]:
    """Describe this machine at this moment.

    Args:
        threads: Threads that the measured model uses.

    Returns:
        ``cpu`` (its model), ``cores`` that this process may use, ``threads``, and ``load``, the number of
        processes that ran or waited on average over the last minute; None where the system does not say.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"cpu": _cpu(), "cores": cores, "threads": threads, "load": load}


def _cpu() -> str:
    """Name the CPU's model."""
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
