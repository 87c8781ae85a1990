"""Time of a sampled run by part: a summary of py-spy's collapsed stacks.

A line is a stack, outermost frame first, and how often it was seen. Samples of waiting threads are left out:
Ray's idle workers would outweigh all else.
"""

from collections import Counter
from collections.abc import Iterable

WAITING = (
    "Worker.main_loop",
    "_blocking",
    "_next_batch (grpc",
    "_try_wait (subprocess.py",
    "_wait_for_tstate_lock",
    "accept (socket.py",
    "communicate (subprocess.py",
    "get (queue.py",
    "get_objects (ray/_private/worker.py",
    "LogMonitor.run",
    "poll (selectors.py",
    "readinto (socket.py",
    "recv (multiprocessing",
    "select (selectors.py",
    "sleep",
    "wait (ray/_private/worker.py",
    "wait (threading.py",
)
"""A thread whose innermost frame is one of these does nothing."""

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("importing libraries", ("<frozen importlib",)),
    ("reading the corpus", ("stillhouse/corpora/",)),
    ("dev and test evaluations", ("stillhouse/evaluation/", "stillhouse/training/watch.py")),
    ("the teacher's passes and files", ("stillhouse/teachers/",)),
    ("backward passes", ("_engine_run_backward",)),
    ("optimiser's arithmetic", ("torch/optim/", "clip_grad", "get_total_norm")),
    ("the student's forward passes and losses", ("stillhouse/training/module.py", "stillhouse/losses/")),
    ("batches, checkpoints, metrics of the training", ("stillhouse/training/",)),
    ("tracking", ("stillhouse/tracking/", "mlflow/")),
    ("the searcher", ("optuna/",)),
    ("Ray", ("ray/",)),
)
"""A stack belongs to the first part one of whose marks is in one of its frames."""
OTHER = "other"


def by_part(lines: Iterable[str]) -> tuple[dict[str, int], int]:
    """Busy samples by part, most first; and how many samples were of waiting threads."""
    busy: Counter[str] = Counter()
    waiting = 0
    for line in filter(None, map(str.rstrip, lines)):
        stack, _, seen = line.rpartition(" ")
        frames = stack.split(";")
        if any(mark in frames[-1] for mark in WAITING):
            waiting += int(seen)
        else:
            busy[_part(stack)] += int(seen)
    return dict(busy.most_common()), waiting


def _part(stack: str) -> str:
    return next((name for name, marks in PARTS if any(mark in stack for mark in marks)), OTHER)


def report(lines: Iterable[str]) -> str:
    """A line a part, with its share of all busy samples."""
    busy, waiting = by_part(lines)
    whole = max(1, sum(busy.values()))
    parts = [
        f"{name:<46} {100 * seen / whole:5.1f} %  {'#' * round(50 * seen / whole)}"
        for name, seen in busy.items()
    ]
    return "\n".join([*parts, f"({whole} busy samples; {waiting} of waiting threads left out)"])
