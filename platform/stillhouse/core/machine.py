"""The machine that a measurement runs on, and how busy it is."""

import os
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
_UNKNOWN = 1 << 62
"""Bytes of a machine that does not tell."""


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


def available_memory() -> int:
    """Bytes of memory that this process may still use, within the limit of its control group."""
    free = [_UNKNOWN]
    if _MEMINFO.is_file():
        for line in _MEMINFO.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                free.append(int(value.split()[0]) * 1024)
    limit, used = _GROUP / "memory.max", _GROUP / "memory.current"
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()) != "max":
        free.append(max(0, int(most) - int(used.read_text())))
    return min(free)


def _cpu() -> str:
    """Name the CPU's model."""
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
