"""Progress of plans that are trained, here or elsewhere, while nothing else is printed about them."""

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import on_terminal, rate_in_words, show_progress, tell
from stillhouse.core.errors import BadInput
from stillhouse.core.job_clock import duration
from stillhouse.core.repeating import repeated
from stillhouse.training.estimate import Course, course_at
from stillhouse.training.facts import read_facts
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

_DOING = {"distil": "distilling", "finetune": "fine-tuning"}


@dataclass
class _Followed:
    """A plan that is being trained.

    Attributes:
        stage: The last stage of the plan.
        due: When it is looked at next, on the monotonic clock.
        moved: When it was last seen to advance, on the monotonic clock.
        told: Examples that it had seen at the last line.
        first: Time and examples of the first look at a stage that leaves no log here.
        waiting: What its ranks waited for at the last line; empty for nothing.
        cost_s: Seconds that it took to read how far it is.
    """

    stage: Stage
    due: float
    moved: float
    told: int = 0
    first: tuple[str, float, int] = ("", 0.0, 0)
    waiting: str = ""
    cost_s: float = 0.0


class PlanFollower:
    """Prints a line, or draws a bar, on every followed plan about which nothing was printed for some seconds.

    Whatever process trains a plan writes the metrics of its stages and their pulse into the workspace, where
    this reads how far it is.
    """

    def __init__(self, workspace: Workspace, every_s: float = EVERY_S) -> None:
        self.workspace, self.every_s = workspace, every_s
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()
        self._watch = repeated(self.tell, every_s=_POLL_S, name="follower")

    def follow(self, title: str, stage: Stage) -> None:
        """Follow a plan from now on, by its last stage; its lines begin with a title, such as ``trial 3``."""
        with self._lock:
            now = time.monotonic()
            plan = self._followed[title] = _Followed(stage, due=now, moved=now)
            plan.due = now + self._wait(plan)

    def heard(self, title: str) -> None:
        """Something else was printed about a plan."""
        with self._lock:
            if (plan := self._followed.get(title)) is not None:
                plan.due = time.monotonic() + self._wait(plan)

    def leave(self, title: str) -> None:
        """Follow a plan no longer."""
        with self._lock:
            self._followed.pop(title, None)

    def plans(self) -> dict[str, Stage]:
        """Return the plans that are followed, by title."""
        with self._lock:
            return {title: each.stage for title, each in self._followed.items()}

    def tell(self) -> None:
        """Print the lines that are due."""
        now = time.monotonic()
        with self._lock:
            due = [(title, each) for title, each in self._followed.items() if now >= each.due]
            for _, each in due:
                each.due = now + self._wait(each)
        for title, each in due:
            with contextlib.suppress(OSError, BadInput):  # what trains it will say what is wrong
                self._tell_of(title, each, now)

    def _wait(self, plan: _Followed) -> float:
        """Seconds after which a plan is looked at again."""
        if len(self._followed) > 1 or not on_terminal():
            return self.every_s
        return min(self.every_s, max(_BAR_S, plan.cost_s / _SHARE))

    def _tell_of(self, title: str, plan: _Followed, now: float) -> None:
        stages = list(plan.stage.chain())
        left = [part for part in stages if not self.workspace.finished(part)]
        course = course_at(left[0], self.workspace) if left else Course()
        plan.cost_s = time.monotonic() - now
        seen = sum(part.examples_seen for part in stages if part not in left) + course.seen
        moved, plan.told = seen != plan.told, seen
        if moved:
            plan.moved = now
        if self._tell_of_wait(title, plan, now) or not left:
            return
        part = left[0]
        what = f"{title}, {_DOING.get(part.label, part.label)}" if len(stages) > 1 else title
        if course.evaluating:
            tell(f"{what}: evaluating{_on_dev(part, self.workspace)}")
            plan.due = now + self.every_s
            return
        words = f"{course.seen:,} of {part.examples_seen:,} examples"
        if now - plan.moved >= STALLED_S and not moved:
            tell(f"{what}: {words}, no news for {duration(now - plan.moved)}")
            plan.due = now + self.every_s
            return
        rate = course.rate or self._rate_from_here(part, course.seen, plan, now)
        show_progress(
            what, course.seen, part.examples_seen, f"{words}, {rate_in_words(rate)}" if rate else words
        )

    @staticmethod
    def _rate_from_here(part: Stage, seen: int, plan: _Followed, now: float) -> float:
        """The rate since the first look, for a stage that leaves no log here or a single line of it."""
        if plan.first[0] != part.fingerprint:
            plan.first = (part.fingerprint, now, seen)
        _, then, before = plan.first
        return (seen - before) / (now - then) if now > then else 0.0

    def _tell_of_wait(self, title: str, plan: _Followed, now: float) -> bool:
        """Print what a plan's ranks wait for, or that they have it; return whether a line was printed."""
        wait = wait_of(plan.stage, self.workspace)
        before, plan.waiting = plan.waiting, ""
        if wait is None:
            return False
        seconds = (wait.ended or time.time()) - wait.began
        if wait.ended is None and seconds >= WAITS_S:
            plan.waiting = wait.what
            tell(f"{title}: waiting for {wait.what}, for {duration(seconds)}")
        elif wait.ended is not None and before:
            tell(f"{title}: has {wait.what}, after {duration(seconds)}")
        else:
            return False
        plan.due, plan.moved = now + self.every_s, now
        return True

    def __enter__(self) -> "PlanFollower":
        """Begin to watch, in a thread of its own."""
        self._watch.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Watch no longer."""
        self._watch.__exit__(*raised)


def wait_of(stage: Stage, workspace: Workspace) -> Wait | None:
    """Return the latest wait of the ranks that train a plan's first unfinished stage; None if it had none."""
    for part in stage.chain():
        if not workspace.finished(part):
            # A cluster that no longer answers is what ends the command, with its own message.
            with contextlib.suppress(Exception):
                return mailbox_of(workspace, part).latest_wait()
            break
    return None


def _on_dev(stage: Stage, workspace: Workspace) -> str:
    """`` on dev, 250 queries``, as far as the stage has noted it."""
    facts = read_facts(workspace.place(stage))
    for figure in facts.get("figures", {}).values():
        return f" on {figure['split']}, {figure['count']:,} {figure['unit']}"
    return ""
