"""Something small that is done again and again beside the work."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def repeated(
    action: Callable[[], None],
    *,
    every_s: float,
    name: str,
    patience_s: float | None = None,
) -> Iterator[None]:
    """Call something every few seconds in a thread, as long as the block runs; the first time after a wait.

    Args:
        action: What is called; an error that it raises ends the thread.
        every_s: Seconds between two calls.
        name: Name of the thread.
        patience_s: How long the end of the block waits for a call that goes on; None waits for its end.
    """
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(every_s):
            action()

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patience_s)
