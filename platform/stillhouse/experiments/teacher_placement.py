"""Placement of the teacher's run: device and processes."""

from dataclasses import dataclass
from typing import Any

from stillhouse.cluster.resources import teacher_actors
from stillhouse.core.errors import require
from stillhouse.core.machine import cores


@dataclass(frozen=True)
class Embedding:
    """Placement of the teacher's run: device and processes.

    Attributes:
        actors: Teacher actors in the pool; 0 takes one per GPU, or one per CPU where there is no GPU.
        threads: Threads per actor; fixed, so that the bytes of a store do not depend on the pool.
        local: Whether the teacher runs in this process without Ray, with one thread per CPU.
        device: ``cpu``, ``cuda``, ….
    """

    actors: int = 0
    threads: int = 1
    local: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.actors >= 0, "actors >= 0", actors=self.actors)

    @property
    def each(self) -> int:
        """Threads of each process."""
        return cores() if self.local else self.threads

    def resources(self) -> dict[str, Any]:
        """Return the arguments of `training.inputs.get`."""
        actors = 0 if self.local else self.actors or teacher_actors(self.device)
        return {"device": self.device, "threads": self.each, "actors": actors}
