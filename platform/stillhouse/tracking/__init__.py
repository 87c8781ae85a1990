"""Tracking of runs in progress: what a tracker is given, and the tail of the workers' metrics logs.

The driver is the only writer. Workers append metrics to ``metrics.jsonl`` in their stage's folder, one JSON
object per line (``step``, ``examples``, ``time``, ``metrics``, a checksum), and `MetricsTail` follows these
files.
"""

import contextlib
import platform
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from stillhouse.core.json_text import parse_line
from stillhouse.core.repeating import repeated

Key = tuple[str, ...]
"""Which run: (sweep,), (sweep, trial) or (sweep, trial, stage); the parent's key lacks the last part."""

BEST_TRIAL = "student/trial"
"""The metric of a sweep's run that holds the number of the trial whose settings its best student has."""
REFITTED = "student/refitted"
"""The metric of a sweep's run that is 1 where the student that it delivered is the refit of that trial."""
MSE_BASELINE = "MSE baseline"
"""What a sweep's baseline is called where its run does not say otherwise."""
TRIAL, REFIT = "trial", "refit"
"""What the keys of the runs of trials, and of their refits, begin with."""
BASELINE = "baseline"
"""What stands before that in those of the baseline's; the parameter of a sweep's run that names it."""
BEST_SUFFIX = " (best student)"
"""Added to the name of the run that trained the best student: a trial, or the refit of one."""
ENDED_WELL = ("finished", "stopped early")
ENDED = (*ENDED_WELL, "failed", "interrupted")
_PACKAGES = "stillhouse torch transformers sentence-transformers ray optuna mlflow numpy faiss-cpu faiss-gpu"


@dataclass(frozen=True, slots=True)
class Row:
    """Metrics at one step.

    Attributes:
        step: Optimiser step; a metric has one value per step, and the first one reported is kept.
        time: Seconds since the epoch.
        metrics: Values by name.
    """

    step: int
    time: float
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Data:
    """Rows that runs are trained on, as MLflow's UI lists them."""

    name: str
    digest: str
    source: str


@dataclass(frozen=True, slots=True)
class View:
    """A table of runs as people want to see it first: few columns, sorted by the one that matters.

    Attributes:
        title: Its name in the UI.
        level: ``sweep``, ``trial`` or ``stage``: the runs that it lists.
        metrics: Metrics in the order of the columns; runs are sorted by the first, the highest on top.
        parameters: Parameters in the order of the columns.
    """

    title: str
    level: str
    metrics: Sequence[str]
    parameters: Sequence[str]


class MetricsTail:
    """Follow the metrics logs of workers in a thread, and forward new lines.

    A line is forwarded once it is complete. A log that a resumed worker truncated is read again from its
    start; the journal drops the steps that it already has.
    """

    def __init__(self, forward: Callable[[Key, list[Row]], None], every_s: float = 1.0) -> None:
        """Start the thread, which calls ``forward`` with a run and its new rows."""
        self._forward, self._lock = forward, threading.Lock()
        self._logs: dict[tuple[Key, Path], _OpenLog] = {}
        self._polling = contextlib.ExitStack()
        self._polling.enter_context(repeated(self.poll, every_s=every_s, name="metrics-tail"))

    def follow(self, key: Key, path: Path) -> None:
        """Follow a log, which need not exist yet; a second call for the same run and file does nothing."""
        self._logs.setdefault((key, path), _OpenLog(path))

    def poll(self) -> None:
        """Read every log now."""
        with self._lock:
            for (key, _), log in list(self._logs.items()):
                rows = log.read()
                if rows:
                    self._forward(key, rows)

    def close(self) -> None:
        """Read every log once more, and end the thread."""
        self._polling.close()
        self.poll()


class _OpenLog:
    """One file and the position in it: the offset, and the last line as proof that nothing was cut."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.last = path, 0, b""

    def read(self) -> list[Row]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset - len(self.last))
                if file.read(len(self.last)) != self.last:
                    self.offset, self.last = 0, b""
                    file.seek(0)
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        if not lines:
            return []
        self.offset, self.last = self.offset + sum(map(len, lines)), lines[-1]
        return [row for line in lines if (row := _row(line)) is not None]


def _row(line: bytes) -> Row | None:
    """Parse a line; None for one that is damaged, or was left half written and then appended to."""
    entry = parse_line(line)
    if entry is None:
        return None
    try:
        metrics = {"examples": entry["examples"], **entry["metrics"]}
        return Row(int(entry["step"]), float(entry["time"]), {k: float(v) for k, v in metrics.items()})
    except (ValueError, KeyError, TypeError):
        return None


def flatten(nested: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Flatten parameters to dotted names: ``{"a": {"b": 1}}`` becomes ``{"a.b": "1"}``."""
    flat: dict[str, str] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def readable(metric: str) -> str:
    """Put a metric's name into words: ``docsearch_cosine_mrr_at_10`` becomes ``docsearch mrr@10``."""
    return " ".join(word for word in metric.replace("_at_", "@").split("_") if word != "cosine")


def provenance() -> dict[str, str]:
    """Return what runs: the git revision (when run from a checkout), Python, and the packages' versions."""
    versions = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in _PACKAGES.split():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[f"version.{name}"] = metadata.version(name)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # Not in a folder of a user's repository.
        versions["git.revision"] = _git("describe", "--match=", "--always", "--abbrev=40", "--dirty")
    return versions


def _git(*words: str) -> str:
    """Return what git says of the repository that this file is in."""
    folder = Path(__file__).parent
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()
