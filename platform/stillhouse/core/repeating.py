"""Something small that is done again and again beside the work."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)


@contextlib.contextmanager
def repeated(
    action: Callable[[], object],
    *,
    every_s: float,
    name: str,
    patience_s: float | None = None,
) -> Iterator[None]:
    """Call something every few seconds in a thread, as long as the block runs; the first time after a wait.

    Args:
        action: What is called. An error of it goes to the log: what it asks or tells ends the work itself,
            with a message of its own, where that cannot go on without it.
        every_s: Seconds between two calls.
        name: Name of the thread.
        patience_s: How long the end of the block waits for a call that goes on; None waits for its end.
    """
    ended = threading.Event()

    def work() -> None:
        logged = ""
        while not ended.wait(every_s):
            try:
                action()
            except Exception as error:
                if str(error) != logged:
                    log.warning("%s failed, and goes on", name, exc_info=True)
                logged = str(error)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patience_s)
