"""Terminal output: results on standard output, our other lines on standard error, libraries' in a log."""

import contextlib
import functools
import io
import logging
import os
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from stillhouse.core import progress_bar
from stillhouse.core.job_clock import JobClock, duration
from stillhouse.core.redaction import redacted
from stillhouse.core.repeating import repeated

_screen: TextIO | None = None
_page: TextIO | None = None
_aside = False
_activities: list[tuple[str, float]] = []
_heard = time.monotonic()
_watching = False
_clock: JobClock | None = None

SILENT_S = 25.0
"""Seconds without a line after which a command says what it is doing."""
_MINUTE_S = 60.0
"""Seconds over which a rate is measured, or the second half of a shorter time."""
_PARTS = 4
"""Least number of lines that a rate is measured over, once there are so many."""
_JUST_BEGUN_S = 10.0
"""Seconds of work of which nothing is said yet."""

_OFF_BY_DEFAULT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TQDM": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
}


def private_environment() -> None:
    """Turn off telemetry and progress bars through environment variables; the user's settings stay.

    Call it before ray, mlflow or transformers is imported: they read these variables on import.
    """
    for name, value in _OFF_BY_DEFAULT.items():
        os.environ.setdefault(name, value)


def private_variables() -> dict[str, str]:
    """The same variables with this process's values, for processes on other machines."""
    return {name: os.environ.get(name, value) for name, value in _OFF_BY_DEFAULT.items()}


@contextlib.contextmanager
def diverted_chatter(folder: Path, *, verbose: bool) -> Iterator[None]:
    """Redirect the libraries' logging, warnings and raw standard error to a file in ``folder``.

    With ``verbose``, or inside another such block, nothing is redirected. Our own lines stay on the screen.
    """
    if verbose or _screen is not None:
        yield
        return
    sys.stderr.flush()
    with (
        _RedactedFile(_writable_log(folder)) as file,
        _stderr_to(file),
        _logging_to(file),
        _stdout_to(file),
    ):
        yield


def log_failure(error: BaseException, folder: Path) -> Path:
    """Write the traceback of an unexpected error to the log file, or to a temporary one if it cannot be."""
    path = _writable_log(folder)
    with path.open("a", encoding="utf-8") as file:
        file.write(redacted("".join(traceback.format_exception(error))))
    return path


def log_in(folder: Path) -> Path | None:
    """This process's log file in a folder, if something was written to it."""
    for path in (folder / _log_name(os.getpid()), Path(tempfile.gettempdir()) / _log_name(os.getpid())):
        with contextlib.suppress(OSError):
            if path.stat().st_size:
                return path
    return None


def _writable_log(folder: Path) -> Path:
    """This process's log file in a folder, or in that of temporary files if the folder cannot be written."""
    name = _log_name(os.getpid())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        return folder / name
    except OSError:
        return Path(tempfile.gettempdir()) / name


@functools.cache
def _log_name(process: int) -> str:
    """The name of a process's log files, after the time of the first use."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{process}.log"


@contextlib.contextmanager
def _stderr_to(file: TextIO) -> Iterator[None]:
    """Point descriptor 2, which compiled code writes to, at the file; `say` and `warn` still print."""
    screen, python_stderr = os.dup(2), sys.stderr
    os.dup2(file.fileno(), 2)
    with open(screen, "w", buffering=1, encoding="utf-8", errors="replace") as kept:
        global _screen
        _screen, before, sys.stderr = (
            kept if _is_descriptor_2(python_stderr) else python_stderr,
            _screen,
            file,
        )
        try:
            yield
        finally:
            _screen, sys.stderr = before, python_stderr
            os.dup2(kept.fileno(), 2)


def _is_descriptor_2(stream: TextIO) -> bool:
    """Return whether a stream writes to descriptor 2; that of a notebook does not."""
    try:
        return stream.fileno() == 2
    except OSError:
        return False


@contextlib.contextmanager
def _stdout_to(file: TextIO) -> Iterator[None]:
    """Redirect what libraries print to the file; `show` still prints."""
    global _page
    kept, before = sys.stdout, _page
    _page, sys.stdout = kept, file
    try:
        yield
    finally:
        _page, sys.stdout = before, kept


@contextlib.contextmanager
def _logging_to(file: TextIO) -> Iterator[None]:
    handler = logging.StreamHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)


class _RedactedFile(io.TextIOWrapper):
    """A log file without secrets: Python's writes are redacted at once, those of compiled code at the end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.open("ab"), encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self._path, self._begin = path, path.stat().st_size

    def write(self, text: str) -> int:
        """Write a text without its secrets."""
        super().write(redacted(text))
        return len(text)

    def close(self) -> None:
        """Close the file, and redact what descriptor 2 was given directly."""
        if self.closed:
            return
        super().close()
        with contextlib.suppress(OSError), self._path.open("r+b") as file:
            file.seek(self._begin)
            for line in file.readlines():
                hidden = redacted(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
                if hidden != line:
                    # In its place: processes of Ray, which inherited the descriptor, may still append.
                    file.seek(self._begin)
                    file.write(hidden.rstrip(b"\n").ljust(len(line) - 1)[: len(line) - 1] + line[-1:])
                self._begin += len(line)


def say(line: str = "") -> None:
    """Print one line of progress, or a note, to standard error immediately."""
    _print(line, _error_stream())


def warn(line: str) -> None:
    """Print one line to standard error immediately, with the program's name."""
    _print(f"stillhouse: {line}", _error_stream())


def show(line: str = "") -> None:
    """Print one line of a result (a table, a metric, a written path) to standard output immediately."""
    _print(line, _error_stream() if _aside else result_stream())


def result_stream() -> TextIO:
    """Standard output, whatever libraries' output is redirected to."""
    return _page or sys.stdout


@contextlib.contextmanager
def results_aside(*, when: bool) -> Iterator[None]:
    """Let `show` print to standard error, when a file of results goes to standard output."""
    global _aside
    before, _aside = _aside, when
    try:
        yield
    finally:
        _aside = before


def _error_stream() -> TextIO:
    return _screen or sys.stderr


def _print(line: str, stream: TextIO) -> None:
    global _heard
    _heard = time.monotonic()
    progress_bar.erase()
    print(redacted(line), file=stream, flush=True)


def tell(line: str) -> None:
    """Print a line on how far work is, behind the clock of the job where there is one."""
    say(f"[{_clock}] {line}" if _clock is not None else f"  {line}")


@contextlib.contextmanager
def timed_job() -> Iterator[JobClock]:
    """Start the clock of a job, or go on with that of the job around it."""
    global _clock
    if _clock is not None:
        yield _clock
        return
    _clock = JobClock()
    try:
        yield _clock
    finally:
        _clock = None


def job_clock() -> JobClock:
    """Return the clock of the job, or one that nobody reads."""
    return _clock or JobClock()


def on_terminal() -> bool:
    """Return whether progress is printed to a terminal, where it is a bar."""
    return progress_bar.is_terminal(_error_stream())


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Name the work of this block, for the line that `never_silent` prints if it prints nothing itself."""
    _activities.append((what, time.monotonic()))
    try:
        yield
    finally:
        _activities.pop()


@contextlib.contextmanager
def never_silent() -> Iterator[None]:
    """Say what is being done when nothing was printed for a while; within another such block do nothing."""
    global _watching, _heard
    if _watching:
        yield
        return
    _watching, _heard = True, time.monotonic()
    try:
        with repeated(_tell_activity, every_s=min(1.0, SILENT_S / 4), name="never silent"):
            yield
    finally:
        _watching = False


def _tell_activity() -> None:
    """After a silence, print the innermost named work that has not just begun, and how long it has taken."""
    now = time.monotonic()
    if now - _heard < SILENT_S:
        return
    long = [(what, now - began) for what, began in tuple(_activities) if now - began >= _JUST_BEGUN_S]
    if long:
        what, seconds = long[-1]
        tell(f"{what}, for {duration(seconds)}")


def show_progress(what: str, done: int, total: int | None, words: str) -> None:
    """Show how far some work is: by a bar on a terminal, else, and at the end, by a line."""
    global _heard
    if not on_terminal() or done == total:
        tell(f"{what}: {words}")
        return
    _heard = time.monotonic()
    clock = f" [{_clock}]" if _clock is not None else ""
    progress_bar.draw(_error_stream(), redacted(what), done, total, words + clock)


class Progress:
    """Progress of long work: amount done, rate of late, and time left.

    On a terminal it is a bar, elsewhere a line every few seconds; the last line is printed on both.
    """

    every_s = 5.0
    """Seconds between lines."""

    def __init__(self, what: str, unit: str) -> None:
        self.what, self.unit = what, unit
        self.last = self.began = time.monotonic()
        self.seen: deque[tuple[float, int, float]] = deque()

    def __call__(
        self, done: int, total: int | None, share: float | None = None, *, at: float | None = None
    ) -> None:
        """Show the progress if it is due, and always at the end.

        Args:
            done: The amount.
            total: Of how much; None if it is unknown.
            share: The share of the work that is done, where parts of the amount differ in work.
            at: When so much was done, on the monotonic clock; None for now.
        """
        now, bar = time.monotonic(), on_terminal()
        at = now if at is None else at
        even = done if share is None or total is None else share * total
        if not self.seen:
            self.seen.append((at, done, even))
            self.began = at
        every_s = min(self.every_s, progress_bar.EVERY_S) if bar else self.every_s
        if done != total and now - self.last < every_s:
            return
        self.last = now
        words = self._words(done, total, *self._rates(at, done, even), even)
        show_progress(self.what, done, total, words)

    def _words(self, done: int, total: int | None, rate: float, pace: float, even: float) -> str:
        speed = f", {rate_in_words(rate)}" if rate > 0 else ""
        left = f", {duration((total - even) / pace)} left" if total and pace > 0 and done < total else ""
        of = "" if total is None else f" of {total:,}"
        return f"{done:,}{of} {self.unit}{speed}{left}"

    def _rates(self, at: float, done: int, even: float) -> tuple[float, float]:
        """The rates of the amount and of the work since a minute ago, or since half of a shorter time.

        What comes in large parts, as shards do, is averaged over some of them.
        """
        since = max(at - _MINUTE_S, (at + self.began) / 2)
        while len(self.seen) > _PARTS and self.seen[1][0] <= since:
            self.seen.popleft()
        then, before, even_before = self.seen[0]
        self.seen.append((at, done, even))
        seconds = max(at - then, 1e-9)
        return (done - before) / seconds, (even - even_before) / seconds


def rate_in_words(rate: float) -> str:
    """Write a rate per second, such as ``26/s`` or ``0.8/s``."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
