"""Compute devices: the requested one, or the best that this machine has."""

import contextlib

from stillhouse.core.errors import require
from stillhouse.core.machine import cores


def resolve_device(device: str) -> str:
    """Replace ``auto`` by this machine's best device; return anything else unchanged."""
    if device != "auto":
        return device
    return next(kind for kind in ("cuda", "mps", "cpu") if has_device(kind))


def heed_quota() -> None:
    """Let torch have no more threads than this process has cores: it knows no quotas of containers."""
    import torch

    if cores() < torch.get_num_threads():
        torch.set_num_threads(cores())


def on_device(device: str) -> contextlib.AbstractContextManager[object]:
    """Make a GPU the current one within a block: new events, streams and generators mean that one."""
    import torch

    return torch.cuda.device(device) if device.startswith("cuda") else contextlib.nullcontext()


def require_device(device: str) -> None:
    """Refuse a device that this machine does not have: ``cpu``, ``mps``, ``cuda`` or ``cuda:1``.

    Raises:
        BadInput: The device is missing.
    """
    require(
        has_device(device),
        "the device must be on this machine",
        device=device,
        remedy="Omit --device to use the best one available.",
    )


def usable_device(device: str) -> str:
    """Return the device if this machine has it, else the CPU: a cluster's driver may run on a CPU node."""
    return device if has_device(device) else "cpu"


def has_device(device: str) -> bool:
    """Return whether this machine has a device."""
    import torch

    kind, _, index = device.partition(":")
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    return (index.isdecimal() or not index) and int(index or 0) < counts.get(kind, 0)
