"""Commands in forked processes of a parent that has imported everything: a start costs milliseconds."""

import contextlib
import importlib
import mmap
import os
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stillhouse.core.errors import mistake_in
from stillhouse.core.signals import lost_threads_end

STILL_RUNNING = -1000
"""Exit code of a command that was ended because it exceeded its limit."""
_COUNTERS = 16


class Counters:
    """Whole numbers in memory that a process shares with its forked children, whatever ends them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8 * _COUNTERS)

    def add(self, place: int, amount: int = 1) -> int:
        """Add to a counter and return its new value; one process writes at a time."""
        value = self[place] + amount
        struct.pack_into("<q", self._memory, 8 * place, value)
        return value

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("<q", self._memory, 8 * place)[0])


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code, negative for a signal, `STILL_RUNNING` if it exceeded its limit.
        output: What it printed.
        seconds: How long it took.
        orphans: Whether a process of its own outlived it.
    """

    code: int
    output: str
    seconds: float
    orphans: bool


def run_command(
    arguments: list[str],
    printed: Path,
    *,
    limit: float,
    prepare: Callable[[], None] = lambda: None,
    during: Callable[[int], None] | None = None,
) -> Ended:
    """Run a `stillhouse` command in a forked process.

    Args:
        arguments: The command's arguments.
        printed: File that takes its output.
        limit: Seconds after which the command counts as stuck and is killed.
        prepare: Called in the child before the command, to patch what it uses.
        during: Called in the parent with the child's process id while the child runs.
    """
    from stillhouse.cli.main import main

    return run_function(lambda: main(arguments), printed, limit=limit, prepare=prepare, during=during)


def run_function(
    work: Callable[[], int],
    printed: Path,
    *,
    limit: float,
    prepare: Callable[[], None] = lambda: None,
    during: Callable[[int], None] | None = None,
) -> Ended:
    """Run a function, which returns an exit code, in a forked process; see `run_command`."""
    sys.stdout.flush()
    sys.stderr.flush()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_child(work, printed, prepare)
    code = None
    if during is not None:
        during(child)
    while code is None and time.monotonic() - started < limit:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.002)
    seconds = time.monotonic() - started
    if code is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        code = STILL_RUNNING
    orphans = _outlived(child)
    output = printed.read_text(errors="replace") if printed.exists() else ""
    return Ended(code, output, seconds, orphans)


def _be_the_child(work: Callable[[], int], printed: Path, prepare: Callable[[], None]) -> None:
    """Run the work in a session of its own and exit; never returns."""
    code = 1
    try:
        os.setsid()
        out = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prepare()
        with lost_threads_end():
            code = work()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:
        mistake = mistake_in(error)  # as a command does: parts of one are run here too
        if mistake is None:
            traceback.print_exc()
        else:
            code = 2
            print(mistake, file=sys.stderr)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _outlived(session: int) -> bool:
    """Whether a process of a session is left a second after its first process ended; it is then killed."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)
    return True


def import_all(names: Path) -> None:
    """Import the modules that a command used, listed one per line, so that forked children have them.

    Raises:
        RuntimeError: An import has started a thread, which would not survive a fork.
    """
    for name in names.read_text().split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    running = [thread.name for thread in threading.enumerate()]
    if len(running) > 1:
        raise RuntimeError(f"no import may start a thread, but these run: {running}")
