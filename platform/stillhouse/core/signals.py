"""Ends of a command from outside: SIGTERM, handled as Ctrl-C, and too little memory for a thread."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

from stillhouse.core.console import warn
from stillhouse.core.errors import no_memory


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` in the main thread on SIGTERM while the block runs."""
    with signals_kept():
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
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


@contextlib.contextmanager
def lost_threads_end() -> Iterator[None]:
    """End the process, with exit code 2, if a thread dies of too little memory before it has begun.

    Python's `Thread.start` waits for the new thread without a limit, so the command would never end.
    """
    before = sys.unraisablehook

    def ending(lost: "sys.UnraisableHookArgs") -> None:
        if "thread started by" in (lost.err_msg or "") and _is_of_memory(lost.exc_value):
            with contextlib.suppress(MemoryError):
                warn(str(no_memory()))
            os._exit(2)
        before(lost)

    sys.unraisablehook = ending
    try:
        yield
    finally:
        sys.unraisablehook = before


def _is_of_memory(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, MemoryError):
        error = error.__context__
    return error is not None
