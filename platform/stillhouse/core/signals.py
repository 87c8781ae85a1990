"""SIGTERM ends a command as Ctrl-C does: cleanly, with one line, and the same command resumes it."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` in the main thread on SIGTERM while the block runs."""
    with signals_kept():
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _interrupt)
        yield


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM after the block; `ray.init` installs its own for SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
