"""What a machine computes on: the device that was asked for, or the best that is there."""

from stillhouse.core.errors import require


def resolve_device(device: str) -> str:
    """``auto`` as the best that this machine has; anything else as it is."""
    if device != "auto":
        return device
    return next(kind for kind in ("cuda", "mps", "cpu") if is_here(kind))


def require_device(device: str) -> None:
    """Refuse a device that this machine does not have.

    Args:
        device: ``cpu``, ``mps``, ``cuda`` or one of several, such as ``cuda:1``.

    Raises:
        BadInput: It is not here.
    """
    require(
        is_here(device),
        "the device is on this machine",
        device=device,
        remedy="Leave --device out to take what there is.",
    )


def usable_device(device: str) -> str:
    """The device where this machine has it, else the CPU: a cluster's driver may stand on a node without."""
    return device if is_here(device) else "cpu"


def is_here(device: str) -> bool:
    """Whether this machine has a device."""
    import torch

    kind, _, index = device.partition(":")
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    return (index.isdecimal() or not index) and int(index or 0) < there.get(kind, 0)
