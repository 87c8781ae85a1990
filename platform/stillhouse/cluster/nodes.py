"""Nodes that are alive, nodes that may come, and what an autoscaler tells of its work."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD = "node:__internal_head__"
"""A resource of which every head node has one unit, whatever else it offers."""
_LAUNCHED = Path("~/ray_bootstrap_config.yaml")
"""Where Ray's cluster launcher leaves its configuration on the head."""
_READ_SECONDS = 30

Nodes = list[tuple[dict[str, float], float]]
"""CPUs and GPUs of a kind of node, and the number of nodes of that kind."""


def nodes_up() -> Nodes:
    """Nodes that are alive."""
    import ray

    alive = Counter(tuple(shape_of(node["Resources"]).items()) for node in ray.nodes() if node["Alive"])
    return [(dict(shape), float(count)) for shape, count in alive.items()]


def started_here() -> bool:
    """Return whether this process has started its Ray itself, which has one node for ever."""
    import ray

    return bool(ray._private.worker._global_node.is_head())


def nodes_to_come() -> Nodes:
    """All nodes that an autoscaler may run at once; empty without one, or if nothing tells its limits.

    Ray's launcher leaves its configuration on the head node, where a task reads it if this process is not
    there. Other launchers leave nothing, see `autoscaler`.
    """
    import ray
    from ray._private.state import state

    config = state.get_cluster_config()
    if config is not None and config.node_group_configs:
        groups = ((group.resources, group.max_count) for group in config.node_group_configs)
        return _kinds((shape_of(resources), math.inf if n < 0 else n) for resources, n in groups)
    if started_here():
        return []
    written = _launcher_file(ray.get_runtime_context().get_job_id())
    return launched(written) if written else []


@functools.cache
def _launcher_file(job: str) -> str:
    """The configuration of the launcher of a job's cluster, from here or from the head; empty without one."""
    import ray

    written = _read_launched()
    if written or not any(HEAD in node["Resources"] for node in ray.nodes() if node["Alive"]):
        return written
    on_head = ray.remote(_read_launched).options(num_cpus=0, resources={HEAD: 0.001})
    try:
        return str(ray.get(on_head.remote(), timeout=_READ_SECONDS))
    except ray.exceptions.GetTimeoutError:
        return ""


def _read_launched() -> str:
    path = _LAUNCHED.expanduser()
    return path.read_text(encoding="utf-8") if path.exists() else ""


def launched(written: str) -> Nodes:
    """Nodes in the YAML of Ray's cluster launcher."""
    import yaml

    config = yaml.safe_load(written)
    head, most = config.get("head_node_type"), config.get("max_workers", 2)
    kinds = config.get("available_node_types", {}).items()
    return _kinds(
        (shape_of(kind.get("resources", {})), 1 if name == head else min(kind.get("max_workers", most), most))
        for name, kind in kinds
    )


def _kinds(nodes: Iterable[tuple[dict[str, float], float]]) -> Nodes:
    return [(shape, float(count)) for shape, count in nodes if count]


def shape_of(resources: Mapping[str, Any]) -> dict[str, float]:
    """The CPUs and GPUs among resources."""
    return {name: float(resources[name]) for name in ("CPU", "GPU") if name in resources}


def in_words(resources: Mapping[str, Any]) -> str:
    """The CPUs and GPUs among resources, such as ``4 CPU + 1 GPU``."""
    room = shape_of(resources)
    return " + ".join(f"{amount:g} {name}" for name, amount in room.items() if amount) or "nothing"


def kinds_in_words(nodes: Nodes) -> str:
    """Kinds of nodes with their numbers, such as ``2 x 4 CPU + 1 GPU; 1 x nothing``."""
    return "; ".join(f"{count:g} x {in_words(shape)}" for shape, count in nodes) or "none"


@dataclass(frozen=True)
class Autoscaler:
    """The autoscaler's report of its work.

    Attributes:
        launching: Kinds of nodes that it is starting, with their numbers.
        failed: Kinds of nodes that it could not start, with the reason.
        impossible: Resources that were asked for, and that no node it may start has.
    """

    launching: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    impossible: tuple[dict[str, float], ...] = ()

    @property
    def in_words(self) -> str:
        """Its present work, as the end of a sentence."""
        if self.failed:
            return f"the autoscaler could not start {'; '.join(self.failed)}"
        if self.launching:
            return f"the autoscaler is starting {', '.join(self.launching)}"
        return "the autoscaler was asked"


def autoscaler() -> Autoscaler | None:
    """Return the report of the cluster's autoscaler; None where there is none.

    Its second version, which `ray up` and KubeRay use, reports to the head node. A head node without an
    autoscaler, and one with the first version, leave the same traces, so the first one is not seen.
    """
    from ray._private.worker import global_worker
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    reply = GetClusterStatusReply()
    reply.ParseFromString(global_worker.gcs_client.get_cluster_status(timeout_s=10))
    if not reply.HasField("autoscaling_state"):
        return None
    return reported(reply.autoscaling_state)


def reported(state: Any) -> Autoscaler:
    """Read the report of an autoscaler from Ray's message ``AutoscalingState``."""
    starting: Counter[str] = Counter()
    for each in state.pending_instance_requests:
        starting[each.ray_node_type_name] += each.count
    starting.update(each.ray_node_type_name for each in state.pending_instances)
    failed = [f"{each.ray_node_type_name} ({each.reason.strip()})" for each in state.failed_instance_requests]
    return Autoscaler(
        launching=tuple(f"{count} x {kind}" for kind, count in starting.items()),
        failed=tuple(dict.fromkeys(failed)),
        impossible=tuple(dict(bundle) for bundle in _bundles_refused(state)),
    )


def _bundles_refused(state: Any) -> Iterable[Mapping[str, float]]:
    yield from (request.resources_bundle for request in state.infeasible_resource_requests)
    for gang in state.infeasible_gang_resource_requests:
        selected = [request for each in gang.bundle_selectors for request in each.resource_requests]
        yield from (request.resources_bundle for request in [*gang.requests, *selected])
