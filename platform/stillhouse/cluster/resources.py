"""Resources of a trial, and how many trials fit on a cluster now or once it has grown."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.core.errors import require

_HEAD = "node:__internal_head__"
"""A resource of which every head node has one unit, whatever else it offers."""
_MOST = 10_000
"""Limit of concurrent workers on a cluster that may grow without limit."""
_LAUNCHED = Path("~/ray_bootstrap_config.yaml")
"""Where Ray's cluster launcher leaves its configuration on the head."""
_ON_KUBERNETES = "RAY_USAGE_STATS_KUBERAY_IN_USE"

Result = TypeVar("Result")
Nodes = list[tuple[dict[str, float], float]]
"""CPUs and GPUs of a kind of node, and the number of nodes of that kind."""


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
        """Whether a trial starts its own workers, which reserve their resources themselves."""
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
        return {_HEAD: 0.001} if self.nested else self.worker

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of a Ray task."""
        if self.nested:
            return {"num_cpus": 0, "resources": self.trial}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus or 0.0}


def concurrency(need: Need, limit: int) -> int:
    """Number of trials that run at once: as many as fit, up to a limit.

    KubeRay does not tell how far it can grow; there, a given limit is trusted.

    Args:
        need: Resources of one trial.
        limit: Maximum number; 0 means as many as fit.

    Raises:
        BadInput: One trial needs more than the cluster can ever have, so it could never start.
    """
    up, grown = nodes_up(), nodes_to_come()
    fitting = max(capacity(need, up), capacity(need, grown))
    if fitting < need.workers and limit and _ON_KUBERNETES in os.environ:
        return limit
    require(
        fitting >= need.workers,
        "the workers of a trial must fit on the cluster",
        workers=need.workers,
        each=in_words(need.worker),
        fit=fitting,
        nodes="; ".join(f"{count:g} x {in_words(shape)}" for shape, count in grown or up) or "none",
        remedy="Lower --workers or the resources of a worker, or use a larger cluster.",
    )
    fits = fitting // need.workers
    return min(fits, limit) if limit else fits


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
    return "cuda" if any(shape.get("GPU") for shape, _ in [*nodes_up(), *nodes_to_come()]) else "cpu"


def call(function: Callable[..., Result], *arguments: Any, need: Need) -> Result:
    """Call a function as a Ray task with the resources of a trial, and wait for its result."""
    import ray

    result: Result = ray.get(ray.remote(function).options(**need.options).remote(*arguments))
    return result


def teacher_actors(device: str) -> int:
    """Number of teacher actors that fit: one per GPU, or one per CPU if the teacher runs on CPUs."""
    name = "GPU" if device.startswith("cuda") else "CPU"
    kinds = (nodes_up(), nodes_to_come())
    return max(1, *(min(_MOST, int(sum(shape.get(name, 0) * n for shape, n in nodes))) for nodes in kinds))


def nodes_up() -> Nodes:
    """Nodes that are alive."""
    import ray

    alive = Counter(tuple(_shape(node["Resources"]).items()) for node in ray.nodes() if node["Alive"])
    return [(dict(shape), float(count)) for shape, count in alive.items()]


def nodes_to_come() -> Nodes:
    """All nodes that an autoscaler may run at once; empty without one, or if it does not tell."""
    import ray
    from ray._private.state import state

    config = state.get_cluster_config()
    if config is not None and config.node_group_configs:
        groups = ((group.resources, group.max_count) for group in config.node_group_configs)
        return _kinds((_shape(resources), math.inf if n < 0 else n) for resources, n in groups)
    started_here = ray._private.worker._global_node.is_head()
    path = _LAUNCHED.expanduser()
    return [] if started_here or not path.exists() else launched(path)


def launched(path: Path) -> Nodes:
    """Nodes in a configuration of Ray's cluster launcher."""
    import yaml

    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    head, most = config.get("head_node_type"), config.get("max_workers", 2)
    kinds = config.get("available_node_types", {}).items()
    return _kinds(
        (_shape(kind.get("resources", {})), 1 if name == head else min(kind.get("max_workers", most), most))
        for name, kind in kinds
    )


def _kinds(nodes: Iterable[tuple[dict[str, float], float]]) -> Nodes:
    return [(shape, float(count)) for shape, count in nodes if count]


def _shape(resources: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(resources[name]) for name in ("CPU", "GPU") if name in resources}


def capacity(need: Need, nodes: Nodes) -> int:
    """Number of workers that these nodes hold."""
    return sum(_fitting(need.worker, shape, count) for shape, count in nodes)


def _fitting(worker: dict[str, float], shape: dict[str, float], nodes: float) -> int:
    one = min(shape.get(name, 0.0) // amount for name, amount in worker.items() if amount > 0)
    return int(min(one * nodes, _MOST)) if one else 0


def in_words(resources: Mapping[str, Any]) -> str:
    """The CPUs and GPUs among resources, such as ``4 CPU + 1 GPU``."""
    room = _shape(resources)
    return " + ".join(f"{amount:g} {name}" for name, amount in room.items() if amount) or "nothing"
