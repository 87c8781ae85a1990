"""How a process that computes on a CPU keeps its memory."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's ``mallopt``."""


def keep_large_blocks() -> None:
    """Let this process use freed memory again rather than hand it back to the system.

    glibc returns blocks of more than 32 MB at once, and trims smaller ones off its heap; a model asks for the
    same blocks again in the next batch, and every page of them is then fetched and cleared anew. The gradient
    of a vocabulary of 30 522 words of 384 numbers alone has 47 MB. What was measured is in
    `docs/benchmarks.md`. Nothing happens where the C library is another one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_MMAP_MAX, 0)
