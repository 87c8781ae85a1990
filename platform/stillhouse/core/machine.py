"""The machine that a measurement runs on, and how busy it is."""

import contextlib
import os
import platform
import socket
from collections.abc import Iterator, Mapping
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


@contextlib.contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within a block, for the processes that start there."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def ranks_on_loopback() -> dict[str, str]:
    """The variables that keep gloo and NCCL to loopback; a variable that the user has set stays."""
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if not names:
        return {}
    variables = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return {name: os.environ.get(name, min(names)) for name in variables}


def _cpu() -> str:
    """Name the CPU's model."""
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
