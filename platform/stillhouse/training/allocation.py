"""How a training process gets its memory."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's ``mallopt``."""


def keep_large_blocks() -> None:
    """Let freed blocks of more than 32 MB be used again by this process.

    glibc hands them back to the system at once. The gradient of a vocabulary of 30 522 words of 384 numbers
    has 47 MB, and getting as much anew takes a fifteenth of a step (`docs/benchmarks.md`). Nothing happens
    where the C library is another one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_MMAP_MAX, 0)
