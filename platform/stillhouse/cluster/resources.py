"""Resources of a trial, and what fits on a cluster now or once it has grown."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from stillhouse.cluster.nodes import HEAD, Nodes, autoscaler, nodes_to_come, nodes_up, started_here
from stillhouse.cluster.preemption import RETRIES, Preempted
from stillhouse.cluster.running import ray_runs
from stillhouse.core.console import say
from stillhouse.core.errors import require

MOST = 10_000
"""Limit of concurrent workers on a cluster that may grow without limit."""
_ROUNDING = 1e-9
"""So that a fifth of a GPU fits five times."""
_ON_KUBERNETES = "RAY_USAGE_STATS_KUBERAY_IN_USE"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Need:
    """Resources that one trial needs.

    Attributes:
        workers: Number of training processes; a single one runs in the trial's own actor.
        cpus: CPUs per worker.
        gpus: GPUs per worker; None means one if the device is a GPU, see `on`.
    """

    workers: int = 1
    cpus: float = 1.0
    gpus: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.workers >= 1, "workers >= 1", workers=self.workers)
        require(self.cpus > 0, "cpus_per_worker > 0", cpus_per_worker=self.cpus)
        require((self.gpus or 0) >= 0, "gpus_per_worker >= 0", gpus_per_worker=self.gpus)
        require(
            (self.gpus or 0) < 1 or (self.gpus or 0) % 1 == 0,
            "more than one GPU per worker must be a whole number",
            gpus_per_worker=self.gpus,
        )
        require(
            self.workers == 1 or (self.cpus % 1 == 0 and self.gpus in (None, 0, 1)),
            "each of several workers must have whole CPUs, and one GPU or none",
            workers=self.workers,
            cpus_per_worker=self.cpus,
            gpus_per_worker=self.gpus,
        )

    def on(self, device: str) -> "Need":
        """Settle the GPUs: one per worker if the device is a GPU, unless the number was given."""
        return replace(self, gpus=float(device.startswith("cuda"))) if self.gpus is None else self

    @property
    def nested(self) -> bool:
        """True if a trial starts its own workers, which reserve their resources themselves."""
        return self.workers > 1

    @property
    def worker(self) -> dict[str, float]:
        """Ray resources of one worker."""
        return {"CPU": self.cpus, "GPU": self.gpus or 0.0}

    @property
    def trial(self) -> dict[str, float]:
        """Ray resources that Tune reserves; no CPU with nested workers, which need all of them.

        Such a trial only waits and reports. It runs on the head node, which an autoscaler never removes.
        """
        return {HEAD: 0.001} if self.nested else self.worker

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of a Ray task."""
        again = {"max_retries": RETRIES, "retry_exceptions": [Preempted]}
        if self.nested:
            return {"num_cpus": 0, "resources": self.trial, **again}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus or 0.0, **again}


def largest_share(need: Need, count: int) -> Need:
    """The need of each of a few tasks that have the cluster to themselves: an equal share of a node's CPUs.

    Several workers, or a GPU, are a share of their own, and are left as they are.
    """
    nodes = [shape["CPU"] for shape, number in nodes_up() for _ in range(int(number)) if shape.get("CPU")]
    if need.nested or need.gpus or not nodes:
        return need
    tasks_per_node = math.ceil(count / len(nodes))
    return replace(need, cpus=max(need.cpus, min(nodes) // tasks_per_node))


def cluster_device(device: str) -> str:
    """Resolve ``auto``: a GPU if a node of the cluster has one, or a future node may, else the CPU."""
    if device != "auto":
        return device
    to_come = nodes_to_come()
    if any(shape.get("GPU") for shape, _ in [*nodes_up(), *to_come]):
        return "cuda"
    if not to_come and grows():
        say(
            "  device: the CPU, since no node has a GPU now; if the autoscaler can start GPU nodes, give "
            "--device cuda"
        )
    return "cpu"


def grows() -> bool:
    """Whether nodes may come: an autoscaler's limits are known, or one reports, or KubeRay runs one."""
    if started_here():
        return False
    return bool(nodes_to_come()) or autoscaler() is not None or _ON_KUBERNETES in os.environ


def call(function: Callable[..., Result], *arguments: Any, need: Need) -> Result:
    """Call a function as a Ray task with the resources of a trial, and wait for its result."""
    import ray

    result: Result = ray.get(ray.remote(function).options(**need.options).remote(*arguments))
    return result


def has_room_here(need: Need) -> bool:
    """Return whether this process is on a node with the resources of one worker, or on no cluster at all."""
    if not ray_runs():
        return True
    import ray

    own = ray.get_runtime_context().get_node_id()
    here: dict[str, float] = next((node["Resources"] for node in ray.nodes() if node["NodeID"] == own), {})
    return all(here.get(name, 0.0) >= amount for name, amount in need.worker.items())


def teacher_actors(device: str, *, grown: bool = True) -> int:
    """Largest number of teacher actors: one per GPU, or one per CPU if the teacher runs on CPUs.

    Args:
        device: Device of the teacher.
        grown: Whether to count the nodes that may come beside those there are; without limit if an
            autoscaler runs whose limits are not known.
    """
    name, to_come = "GPU" if device.startswith("cuda") else "CPU", nodes_to_come() if grown else []
    if grown and not to_come and grows():
        return MOST
    return max(1, *(min(MOST, int(in_all(name, nodes))) for nodes in (nodes_up(), to_come)))


def in_all(name: str, nodes: Nodes) -> float:
    """CPUs or GPUs of all nodes together."""
    return sum(shape.get(name, 0.0) * count for shape, count in nodes if shape.get(name))


def capacity(need: Need, nodes: Nodes) -> int:
    """Number of workers that these nodes hold."""
    return sum(_fitting(need.worker, shape, count) for shape, count in nodes)


def _fitting(worker: dict[str, float], shape: dict[str, float], nodes: float) -> int:
    one = min(_times(name, amount, shape.get(name, 0.0)) for name, amount in worker.items() if amount > 0)
    return int(min(one * nodes, MOST)) if one else 0


def _times(name: str, amount: float, there: float) -> float:
    """Return how often an amount fits; a fraction of a GPU never lies on two of them."""
    if name == "GPU" and amount < 1:
        return there * math.floor(1 / amount + _ROUNDING)
    return math.floor(there / amount + _ROUNDING)
