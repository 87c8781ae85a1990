"""The machine that a measurement runs on, and how busy it is."""

import contextlib
import os
import platform
import socket
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_UNKNOWN = 1 << 62
"""Bytes of a machine that does not tell."""


def describe_machine(threads: int) -> dict[str, object]:
    """Describe this machine at this moment, for a measured model that uses so many threads.

    Returns:
        ``cpu`` (its model), ``cores`` that this process may use, ``threads``, and ``load``, the number of
        processes that ran or waited on average over the last minute.
    """
    load = round(os.getloadavg()[0], 2)
    return {"cpu": _cpu(), "cores": cores(), "threads": threads, "load": load}


def cores() -> int:
    """Whole cores that this process may use, by its affinity and the quotas of its groups; at least 1."""
    allowed = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group in _groups("cpu"):
        quota, period = (_text(group / "cpu.max").split() or [_text(group / "cpu.cfs_quota_us")] * 2)[:2]
        period = _text(group / "cpu.cfs_period_us") or period
        if quota.isdecimal() and period.isdecimal():  # "max" and -1 mean no limit.
            allowed.append(int(quota) // int(period))
    return max(1, min(allowed))


def available_memory() -> int:
    """Bytes of memory that this process may still use, within the limits of its control groups."""
    free = [_UNKNOWN]
    if "MemAvailable" in (machine := _numbers(_MEMINFO)):
        free.append(machine["MemAvailable"] * 1024)
    for group in _groups("memory"):
        limit = _text(group / "memory.max") or _text(group / "memory.limit_in_bytes")
        used = _text(group / "memory.current") or _text(group / "memory.usage_in_bytes")
        if limit.isdecimal() and used.isdecimal():
            stated = _numbers(group / "memory.stat")
            cached = stated.get("total_inactive_file", stated.get("inactive_file", 0))  # given up when needed
            free.append(max(0, int(limit) - int(used) + cached))
    return min(free)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the control groups that this process is in, version 2 or 1: its own, and those around it."""
    for line in _text(_OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = _GROUPS / controller if controllers else _GROUPS  # `cpu` is a link to `cpu,cpuacct`
            own = root / path.lstrip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _numbers(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number per line."""
    lines = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _text(path: Path) -> str:
    """The text of a file of the system; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


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


@contextlib.contextmanager
def script_left_out() -> Iterator[None]:
    """Let processes that are spawned in a block not run the user's script again, which may have no guard."""
    script, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def ranks_on_loopback() -> dict[str, str]:
    """The variables that keep gloo and NCCL to loopback; a variable that the user has set stays."""
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if not names:
        return {}
    variables = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return {name: os.environ.get(name, min(names)) for name in variables}


def _cpu() -> str:
    """Name the CPU's model."""
    for line in _text(_CPUINFO).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
