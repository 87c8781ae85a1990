"""What a trial takes, and how many fit on a cluster, as it is or as it may grow."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.core.errors import require

_HEAD = "node:__internal_head__"
"""A resource of which every head has one, whatever else it lends."""
_MOST = 10_000
"""Workers at once, where a cluster may grow without end."""
_LAUNCHED = Path("~/ray_bootstrap_config.yaml")
"""Where Ray's cluster launcher leaves the configuration on the head."""
_ON_KUBERNETES = "RAY_USAGE_STATS_KUBERAY_IN_USE"

Result = TypeVar("Result")
Nodes = list[tuple[dict[str, float], float]]
"""CPUs and GPUs of a kind of node, and how many of that kind."""


@dataclass(frozen=True)
class Need:
    """What one trial takes.

    Attributes:
        workers: Training processes; one runs right in the trial's own actor.
        cpus: CPUs a worker.
        gpus: GPUs a worker; None takes one where the device is one, see `on`.
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
            "each of several workers has whole CPUs, and one GPU or none",
            workers=self.workers,
            cpus_per_worker=self.cpus,
            gpus_per_worker=self.gpus,
        )

    def on(self, device: str) -> "Need":
        """The same with its GPUs settled: one a worker on a GPU, unless it was said."""
        return replace(self, gpus=float(device.startswith("cuda"))) if self.gpus is None else self

    @property
    def nested(self) -> bool:
        """Whether a trial starts workers of its own, which reserve their resources themselves."""
        return self.workers > 1

    @property
    def worker(self) -> dict[str, float]:
        """What one worker takes."""
        return {"CPU": self.cpus, "GPU": self.gpus or 0.0}

    @property
    def trial(self) -> dict[str, float]:
        """What Tune reserves. With nested workers no CPU at all: one that the workers need would be missing.

        Such a trial only waits and tells, and has its place on the head, which is not taken away.
        """
        return {_HEAD: 0.001} if self.nested else self.worker

    @property
    def options(self) -> dict[str, Any]:
        """The same for a Ray task."""
        if self.nested:
            return {"num_cpus": 0, "resources": self.trial}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus or 0.0}


def concurrency(need: Need, wanted: int) -> int:
    """How many trials run at once: what was asked for, no more than fit.

    KubeRay does not tell how far it grows: there, a number that was asked for is believed.

    Args:
        need: What a trial takes.
        wanted: The most; 0 takes all that fit.

    Raises:
        BadInput: One trial needs more than the cluster can ever have, and could never start.
    """
    up, grown = nodes_up(), nodes_to_come()
    room = max(_room(need, up), _room(need, grown))
    if room < need.workers and wanted and _ON_KUBERNETES in os.environ:
        return wanted
    require(
        room >= need.workers,
        "the workers of a trial fit on the cluster",
        workers=need.workers,
        each=_told(need.worker),
        fit=room,
        nodes="; ".join(f"{count:g} x {_told(shape)}" for shape, count in grown or up) or "none",
        remedy="Lower --workers or the resources of a worker, or use a larger cluster.",
    )
    fits = room // need.workers
    return min(fits, wanted) if wanted else fits


def cluster_device(device: str) -> str:
    """``auto`` as a GPU where a node of the cluster has one or may come with one, else as the CPU."""
    if device != "auto":
        return device
    return "cuda" if any(shape.get("GPU") for shape, _ in [*nodes_up(), *nodes_to_come()]) else "cpu"


def call(function: Callable[..., Result], *arguments: Any, need: Need) -> Result:
    """Call a function as a task of the cluster that takes what a trial takes, and wait for its result."""
    import ray

    result: Result = ray.get(ray.remote(function).options(**need.options).remote(*arguments))
    return result


def teacher_actors(device: str) -> int:
    """How many teacher actors fit: one a GPU, or one a CPU where the teacher runs on those."""
    name = "GPU" if device.startswith("cuda") else "CPU"
    kinds = (nodes_up(), nodes_to_come())
    return max(1, *(min(_MOST, int(sum(shape.get(name, 0) * n for shape, n in nodes))) for nodes in kinds))


def nodes_up() -> Nodes:
    """The nodes that are up."""
    import ray

    alive = Counter(tuple(_shape(node["Resources"]).items()) for node in ray.nodes() if node["Alive"])
    return [(dict(shape), float(count)) for shape, count in alive.items()]


def nodes_to_come() -> Nodes:
    """All the nodes that an autoscaler may have up at once; none where there is none, or it does not tell."""
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
    """The nodes of a configuration of Ray's cluster launcher."""
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


def _room(need: Need, nodes: Nodes) -> int:
    """How many workers all these nodes hold."""
    return sum(_fitting(need.worker, shape, count) for shape, count in nodes)


def _fitting(worker: dict[str, float], shape: dict[str, float], nodes: float) -> int:
    one = min(shape.get(name, 0.0) // amount for name, amount in worker.items() if amount > 0)
    return int(min(one * nodes, _MOST)) if one else 0


def _told(resources: Mapping[str, float]) -> str:
    return " + ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount) or "nothing"
