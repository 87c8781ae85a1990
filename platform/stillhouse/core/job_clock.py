"""The clock of a job, with which its progress lines begin: seconds so far, and about how many are left."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

_LOOKED_S = 2.0
"""Seconds after which the rest is estimated again; looking may take a twentieth of the time."""
_SHARE = 0.05


class Steps(NamedTuple):
    """Things of one kind that a job does one after the other, such as the models that it tests.

    Attributes:
        done: How many are done.
        total: Of how many.
        seconds: Seconds that these took.
        at: When the last of them was done, on the monotonic clock.
    """

    done: int
    total: int
    seconds: float
    at: float


class JobClock:
    """Counts a job's seconds, in all and by part.

    Attributes:
        left: Estimates the seconds that are left, or None where nothing like the rest has run here.
        seconds: Seconds of each part that has ended, by its name.
        steps: How far the current part is, where it is counted.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.left: Callable[[], float | None] = lambda: None
        self.seconds: dict[str, float] = {}
        self.steps: Steps | None = None
        self._open: dict[str, float] = {}
        self._told: tuple[float, float | None] | None = None
        self._look_at = self.began
        self._looking = threading.RLock()

    @contextlib.contextmanager
    def part(self, name: str, *, within: str = "") -> Iterator[None]:
        """Count the seconds of this block for a part, and not for the part whose block it is ``within``."""
        self._open[name] = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - self._open.pop(name)
            self.add(name, took)
            if within:
                self.add(within, -took)

    def spent(self, name: str) -> float:
        """Return the seconds of a part so far."""
        now = time.monotonic()
        return self.seconds.get(name, 0.0) + (now - self._open[name] if name in self._open else 0.0)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a part."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def step(self, done: int, total: int) -> None:
        """Note that so many things of the current part are done; 0 when the first one begins."""
        now = time.monotonic()
        before = self.steps.seconds + now - self.steps.at if self.steps is not None and done else 0.0
        self.steps = Steps(done, total, before, now)

    def seconds_left(self) -> float | None:
        """Return the seconds that are left, from an estimate that may be some seconds old."""
        now = time.monotonic()
        with self._looking:
            if self._told is None or now >= self._look_at:
                left = None
                # Files that it reads come and go: a line without an estimate is better than a failed job.
                with contextlib.suppress(Exception):
                    left = self.left()
                after = time.monotonic()
                self._told = (after, left)
                self._look_at = after + max(_LOOKED_S, (after - now) / _SHARE)
            told, left = self._told
        return None if left is None else max(0.0, left - (now - told))

    def __str__(self) -> str:
        """``12:31, about 8:00 left``, without the second half where nothing is known of it."""
        left = self.seconds_left()
        rest = "" if left is None else f", about {duration(_rounded(left))} left"
        return f"{duration(time.monotonic() - self.began)}{rest}"


def duration(seconds: float) -> str:
    """Write a duration as ``m:ss``, or as ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _rounded(seconds: float) -> float:
    """Seconds as exactly as an estimate is worth: to 5 below ten minutes, else to half a minute."""
    step = 1.0 if seconds < 30 else 5.0 if seconds < 600 else 30.0
    return max(1.0, round(seconds / step) * step)
