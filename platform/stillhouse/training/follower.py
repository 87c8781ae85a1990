"""Progress of plans that are trained, here or elsewhere, while nothing else is printed about them."""

import contextlib
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, duration, on_terminal, say
from stillhouse.core.errors import BadInput
from stillhouse.training.metrics_log import seen_in
from stillhouse.training.worker_mailbox import Wait, mailbox_of
from stillhouse.values.stage import Stage

EVERY_S = 20.0
"""Seconds after which a plan that nothing was printed about gets a line."""
_BAR_S = 1.0
"""Seconds between two pictures of its bar, which it has on a terminal as long as it is the only one."""
WAITS_S = 10.0
"""Seconds that ranks must have waited for room before a line says so."""
_SHARE = 0.02
"""Of the time, what may be spent on reading how far a plan is."""
STALLED_S = 120.0
"""Seconds without news after which a line says so, instead of a rate and a time."""
_POLL_S = 0.5


@dataclass
class _Followed:
    """A plan that is being trained.

    Attributes:
        stage: The last stage of the plan.
        progress: Prints its lines.
        since: When it was first followed, on the monotonic clock.
        due: When it is looked at next, on the monotonic clock.
        beside: Whether a line is printed only if it has seen more examples since the last one.
        told: Examples that it had seen at the last line.
        waiting: What its ranks waited for at the last line; empty for nothing.
        moved: When it was last seen to advance, on the monotonic clock.
        cost_s: Seconds that it took to read how far it is.
    """

    stage: Stage
    progress: Progress
    since: float
    due: float
    moved: float
    beside: bool = False
    told: int = 0
    waiting: str = ""
    cost_s: float = 0.0


class PlanFollower:
    """Prints a line, or draws a bar, on every followed plan about which nothing was printed for some seconds.

    Whatever process trains a plan writes the metrics of its stages and their pulse into the workspace, where
    this reads how far it is.

    Args:
        workspace: Holds the stages.
        every_s: Seconds of silence before a line.
    """

    def __init__(self, workspace: Workspace, every_s: float = EVERY_S) -> None:
        self.workspace, self.every_s = workspace, every_s
        self._followed: dict[str, _Followed] = {}
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def follow(self, title: str, stage: Stage, *, beside: bool = False) -> None:
        """Follow a plan from now on.

        Args:
            title: What its lines begin with, such as ``trial 3``.
            stage: The last stage of the plan.
            beside: Whether it is trained beside others, so that it may wait for them or end unnoticed; then
                lines are printed only while it advances.
        """
        progress = Progress(title, "examples", every_s=0)
        with self._lock:
            now = time.monotonic()
            self._followed[title] = _Followed(stage, progress, now, now + self.every_s, now, beside)
            self._followed[title].due = now + self._wait(self._followed[title])

    def heard(self, title: str) -> None:
        """Something else was printed about a plan."""
        with self._lock:
            if title in self._followed:
                self._followed[title].due = time.monotonic() + self._wait(self._followed[title])

    def leave(self, title: str) -> None:
        """Follow a plan no longer."""
        with self._lock:
            self._followed.pop(title, None)

    def tell(self) -> None:
        """Print the lines that are due."""
        now = time.monotonic()
        with self._lock:
            due = [each for each in self._followed.values() if now >= each.due]
            for each in due:
                each.due = now + self._wait(each)
        for each in due:
            with contextlib.suppress(OSError, BadInput):  # what trains it will say what is wrong
                self._tell_of(each, now)

    def _wait(self, plan: _Followed) -> float:
        """Seconds after which a plan is looked at again."""
        if plan.beside or len(self._followed) > 1 or not on_terminal():
            return self.every_s
        return min(self.every_s, max(_BAR_S, plan.cost_s / _SHARE))

    def _tell_of(self, plan: _Followed, now: float) -> None:
        seen, total, ago = seen_of(plan.stage, self.workspace)
        plan.cost_s = time.monotonic() - now
        moved, plan.told = seen != plan.told, seen
        if moved:
            plan.moved = now
        if plan.beside and not moved:
            return
        if self._tell_of_wait(plan, now):
            return
        if seen < total and now - plan.moved >= STALLED_S:
            plan.due = now + self.every_s
            still = duration(now - plan.moved)
            say(f"  {plan.progress.what}: {seen:,} of {total:,} examples, no news for {still}")
        elif seen < total:
            # What was trained before it was followed says nothing about its rate now.
            plan.progress(seen, total, at=max(now - ago, plan.since))
        elif not self.workspace.finished(plan.stage):
            plan.due = now + self.every_s
            say(f"  {plan.progress.what}: all {total:,} examples seen, evaluating")

    def _tell_of_wait(self, plan: _Followed, now: float) -> bool:
        """Print what a plan's ranks wait for, or that they have it; return whether a line was printed."""
        wait = wait_of(plan.stage, self.workspace)
        before, plan.waiting = plan.waiting, ""
        if wait is None:
            return False
        seconds = (wait.ended or time.time()) - wait.began
        if wait.ended is None and seconds >= WAITS_S:
            plan.waiting = wait.what
            say(f"  {plan.progress.what}: waiting for {wait.what}, for {duration(seconds)} so far")
        elif wait.ended is not None and before:
            say(f"  {plan.progress.what}: has {wait.what}, after {duration(seconds)}")
        else:
            return False
        plan.due, plan.moved = now + self.every_s, now
        return True

    def __enter__(self) -> "PlanFollower":
        """Begin to watch, in a thread of its own."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_S):
            self.tell()


def wait_of(stage: Stage, workspace: Workspace) -> Wait | None:
    """Return the latest wait of the ranks that train a plan's first unfinished stage; None if it had none."""
    for part in stage.chain():
        if not workspace.finished(part):
            # A cluster that no longer answers is what ends the command, with its own message.
            with contextlib.suppress(Exception):
                return mailbox_of(workspace, part).latest_wait()
            break
    return None


class Seen(NamedTuple):
    """How far a plan is.

    Attributes:
        examples: Examples that it has seen over all its stages.
        total: How many it sees in all.
        ago: Seconds since it had seen so many; 0 where that is not known.
    """

    examples: int
    total: int
    ago: float


def seen_of(stage: Stage, workspace: Workspace) -> Seen:
    """Read how far a plan is."""
    seen, ago = 0, 0.0
    for part in stage.chain():
        if workspace.finished(part):
            seen, ago = seen + part.examples_seen, 0.0
            continue
        examples = _seen_elsewhere(part, workspace)
        if not examples:
            examples, told = seen_in(workspace.place(part))
            ago = max(0.0, time.time() - told) if examples else ago
        seen += examples
    return Seen(seen, stage.examples_in_all, ago)


def _seen_elsewhere(part: Stage, workspace: Workspace) -> int:
    """Examples that a stage has seen on a node that shares a remote alone, as it tells; 0 if it does not."""
    if workspace.remote is None:
        return 0
    # A cluster that no longer answers is what ends the command, with its own message.
    with contextlib.suppress(Exception):
        return mailbox_of(workspace, part).seen() or 0
    return 0
