"""A process that stands still is ended, so that whoever started it can go on from its last checkpoint."""

import faulthandler
import sys
import time

_FRESH = 0.02
"""Share of the limit within which a watchdog that was fed is not fed again, as that starts a thread."""


class Watchdog:
    """Ends the process, with exit code 1 and its threads' stacks on standard error, if nothing feeds it.

    A thread that needs no lock of the interpreter does that: what hangs inside a compiled library is ended,
    too. A process has one at a time.

    Args:
        limit_s: Seconds after which a process that has not fed it ends; 0 never ends it.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._fed: float | None = None

    def feed(self) -> None:
        """Begin the limit anew."""
        now = time.monotonic()
        if self.limit_s and (self._fed is None or now - self._fed > _FRESH * self.limit_s):
            faulthandler.dump_traceback_later(self.limit_s, exit=True, file=sys.__stderr__ or 2)
            self._fed = now

    def rest(self) -> None:
        """Watch nothing until it is fed again."""
        if self._fed is not None:
            faulthandler.cancel_dump_traceback_later()
            self._fed = None

    def __enter__(self) -> "Watchdog":
        return self

    def __exit__(self, *_: object) -> None:
        self.rest()
