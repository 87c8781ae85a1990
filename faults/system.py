"""Faults of the operating system in a forked child: failing calls, deaths between two calls, limits, clocks.

A child calls one of these before its command. Only files below the workspace's root are concerned.
"""

import builtins
import errno
import io
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from children import Counters

CALLS = ("replace", "sync", "create", "read", "remove", "statement", "commit")
"""Kinds of calls: a rename, an fsync, opening a file to write, to read, removing one; and with a database, a
statement and the end of a transaction."""
STEPS, FILES = len(CALLS), len(CALLS) + 1
"""Counters of optimiser steps and of files that were put in their places."""


class Calls:
    """Counts the calls that concern files below a folder, and lets one of them fail.

    Args:
        root: The workspace.
        counters: Count the calls of each kind, in the order of `CALLS`, then steps and files.
    """

    def __init__(self, root: Path, counters: Counters) -> None:
        self.root, self.counters = str(root), counters
        self._at: tuple[str, int] | None = None
        self._before: Callable[[], None] = lambda: None
        self._after: Callable[[], None] = lambda: None
        self._seen = dict.fromkeys(CALLS, 0)
        self._persistent = False
        self._trace: Path | None = None
        self._start: Callable[[], None] = lambda: None

    def at_start(self, action: Callable[[], None]) -> None:
        """Act in the child before its command starts."""
        self._start = action

    def trace(self, file: Path) -> None:
        """Append the name of every file that is put in its place to a file outside the root."""
        self._trace = file

    def on(
        self,
        kind: str,
        number: int,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
        persistent: bool = False,
    ) -> None:
        """Act before or after the call of a kind with a number, from 1; or from then on."""
        self._at, self._before, self._after, self._persistent = (kind, number), before, after, persistent

    def install(self) -> None:
        """Patch this process, which is a child that ends with its command."""
        self._wrap(os, "replace", "replace", moved=True)
        self._wrap(os, "rename", "replace", moved=True)
        self._wrap(os, "fsync", "sync")
        self._wrap(os, "unlink", "remove")
        self._wrap(os, "open", "open")
        self._wrap(io, "open", "open")
        builtins.open = io.open
        self._count_steps()
        self._watch_databases()
        self._start()

    def _wrap(self, module: Any, name: str, kind: str, *, moved: bool = False) -> None:
        original = getattr(module, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            if not self._concerns(arguments[0]):
                return original(*arguments, **named)
            real = kind if kind != "open" else _kind_of_open(arguments, named)
            self.counters.add(CALLS.index(real))
            self._seen[real] += 1
            due = self._at is not None and self._at[0] == real
            at = self._at[1] if self._at else 0
            hit = due and (self._seen[real] == at or (self._persistent and self._seen[real] > at))
            if hit:
                self._before()
            result = original(*arguments, **named)
            if moved:
                self.counters.add(FILES)
                if self._trace:
                    with self._trace.open("a") as file:
                        file.write(f"{Path(arguments[1]).name}\n")
            if hit:
                self._after()
            return result

        setattr(module, name, wrapped)

    def _concerns(self, target: Any) -> bool:
        if isinstance(target, int):
            try:
                target = os.readlink(f"/proc/self/fd/{target}")
            except OSError:
                return False
        path = os.fsdecode(target) if isinstance(target, (str, bytes, os.PathLike)) else ""
        return path.startswith(self.root + "/") and not path.startswith(self.root + "/logs")

    def _watch_databases(self) -> None:
        from sqlalchemy import Engine, event

        event.listen(Engine, "before_cursor_execute", lambda *_: self._pass("statement"))
        event.listen(Engine, "commit", lambda *_: self._pass("commit"))

    def _pass(self, kind: str) -> None:
        """Count something that has no return, and act before it."""
        self.counters.add(CALLS.index(kind))
        self._seen[kind] += 1
        if self._at == (kind, self._seen[kind]):
            self._before()

    def _note_step(self, *_: Any) -> None:
        self.counters.add(STEPS)

    def _count_steps(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._note_step)


def _kind_of_open(arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Tell an opening to write from one to read; ``os.open`` has flags, the others a mode."""
    mode = arguments[1] if len(arguments) > 1 else named.get("mode", named.get("flags", "r"))
    if isinstance(mode, int):
        return "create" if mode & (os.O_WRONLY | os.O_RDWR) else "read"
    return "create" if set(str(mode)) & set("wax+") else "read"


def fails_with(number: int) -> Callable[[], None]:
    """Make an action that raises an error of the operating system."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


def dies_of(number: signal.Signals) -> Callable[[], None]:
    """Make an action that sends a signal to this process."""

    def die() -> None:
        os.kill(os.getpid(), number)

    return die


ERRORS = {
    "an I/O error": errno.EIO,
    "a full disk": errno.ENOSPC,
    "a read-only file system": errno.EROFS,
    "too many open files": errno.EMFILE,
    "a permission denied": errno.EACCES,
    "an exhausted quota": errno.EDQUOT,
}


def limit(what: int, amount: int) -> None:
    """Set a limit of this process, such as the size of files that it writes."""
    if what == resource.RLIMIT_FSIZE:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(what, (amount, amount))


def limit_descriptors(spare: int) -> None:
    """Allow this process to open so many more files than are open."""
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    limit(resource.RLIMIT_NOFILE, highest + spare)


def slow_disk(seconds: float) -> Callable[[], None]:
    """Make an action that delays, for every call of a kind."""
    return lambda: time.sleep(seconds)


def jumping_clock(jumps: list[float], every: int = 20) -> None:
    """Let the clock jump to and fro by so many seconds, after every so many questions."""
    original, asked = time.time, [0]

    def jumped() -> float:
        asked[0] += 1
        return original() + jumps[asked[0] // every % len(jumps)]

    time.time = jumped


def limit_memory(spare: int) -> None:
    """Allow this process so many more bytes of address space than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    amount = pages * resource.getpagesize() + spare
    limit(resource.RLIMIT_AS, amount)


def crowd(processes: int, seconds: float) -> None:
    """Start processes that keep cores busy for some seconds; nobody waits for them."""
    middle = os.fork()
    if middle == 0:
        for _ in range(processes):
            if os.fork() == 0:
                deadline = time.monotonic() + seconds
                while time.monotonic() < deadline:
                    pass
                os._exit(0)
        os._exit(0)
    os.waitpid(middle, 0)


def not_finite(value: float, where: str, step: int) -> None:
    """Put a number that is not finite into the gradients or the weights at an optimiser step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    seen = [0]

    def spoil(optimizer: Any, *_: Any) -> None:
        seen[0] += 1
        if seen[0] == step:
            parameter = optimizer.param_groups[0]["params"][0]
            spoilt = parameter.grad if where == "gradients" else parameter.data
            spoilt.view(-1)[0] = value

    if where == "gradients":
        register_optimizer_step_pre_hook(spoil)
    else:
        register_optimizer_step_post_hook(spoil)
