"""Placement of a plan's run."""

from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import require


def threads_alone(*, local: bool, workers: int) -> int:
    """Threads of each training process where nobody says; 0, torch's choice, if one has the machine."""
    return 0 if local and workers == 1 else 1


@dataclass(frozen=True)
class Where:
    """Placement of a plan's run, which does not affect what it computes.

    Attributes:
        device: ``auto`` (whatever the machine has), ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
        threads: CPU threads per training process; 0 keeps torch's own choice.
        workers: Number of training processes. Several run under Ray Train if Ray is running, otherwise as
            plain processes on this machine.
        checkpoint_seconds: Time between two checkpoints in seconds; see `fit`.
        search: A pool of actors that dev evaluators search with; None searches in the process.
        step_limit_s: Seconds after which a step that does not end ends its process; 0 for no limit, which
            several training processes never have.
        max_failures: Number of lost workers that Ray Train replaces before it gives up.
    """

    device: str = "auto"
    threads: int = 0
    workers: int = 1
    checkpoint_seconds: float = 60.0
    search: Any = None
    step_limit_s: float = 0.0
    max_failures: int = 3

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.workers >= 1, "workers >= 1", workers=self.workers)
        require(self.threads >= 0, "threads >= 0", threads=self.threads)
