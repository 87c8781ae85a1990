"""Memory allocation of a process that computes on a CPU."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's ``mallopt``."""


def keep_large_blocks() -> None:
    """Make this process reuse freed memory instead of returning it to the system.

    glibc returns blocks of more than 32 MB to the system at once, and trims smaller ones off its heap. A
    model allocates the same blocks again for the next batch, and each page is then mapped and zeroed again.
    The gradient of an embedding matrix of 30,522 x 384 alone takes 47 MB. Measurements are in
    `docs/benchmarks.md`. With another C library this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_MMAP_MAX, 0)
