"""Joining a Ray cluster, or starting one of our own."""

import json
import os
from pathlib import Path
from typing import Any

from stillhouse.core.console import private_variables
from stillhouse.core.errors import BadInput, require

_PACKAGE = Path(__file__).resolve().parent.parent
_FOR_WORKERS = ("TUNE_FUNCTION_THREAD_TIMEOUT_S", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S")
_NEW_NODES_SECONDS = 900
"""Nested workers wait so long for nodes that an autoscaler starts; Ray's own minute is too short for them."""
_LAST_WORDS_SECONDS = 150
"""A trial that is stopped lets its nested workers write a checkpoint first."""


def connect(address: str | None, *, nested: bool, verbose: bool) -> None:
    """Join the cluster at ``address`` (or the one this job runs in), else start a local one.

    A local cluster never joins one that happens to run on the machine, listens on loopback only, and ends
    with this process, however it ends. The dashboard is on where trials nest Ray Train runs: their placement
    groups are freed with its help.

    Raises:
        BadInput: No cluster answers there, or its State API does not, which nested runs need.
    """
    import ray

    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", str(_LAST_WORDS_SECONDS if nested else 10))
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(_NEW_NODES_SECONDS))
    chatter = {"log_to_driver": verbose, "logging_level": "INFO" if verbose else "ERROR"}
    if not joins(address):
        _share_code()
        ray.init(address="local", include_dashboard=nested, **chatter)
        return
    try:
        ray.init(address=address or "auto", runtime_env=_workers_environment(), **chatter)
    except ConnectionError as error:
        where = address or os.environ["RAY_ADDRESS"]
        raise BadInput(
            f"a Ray cluster must answer at {where}, but: {error}. Start one: `ray start --head`."
        ) from None
    if nested:
        _require_state_api()


def joins(address: str | None) -> bool:
    """Whether a command joins a cluster that is there, rather than starting one of its own."""
    return address is not None or "RAY_ADDRESS" in os.environ


def _share_code() -> None:
    """Let processes that are started from here find the package where it is not installed."""
    folder = str(_PACKAGE.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _PACKAGE.parent.name not in ("site-packages", "dist-packages") and folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, paths)])


def _workers_environment() -> dict[str, Any]:
    """The package, and the variables of this process that matter there too; a job's own come first."""
    variables = {name: value for name, value in private_variables().items() if not name.startswith("RAY_")}
    variables |= {name: os.environ[name] for name in _FOR_WORKERS}
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env") or {}
    own = {name: value for name, value in variables.items() if name not in (job.get("env_vars") or {})}
    return {"py_modules": [str(_PACKAGE)], "env_vars": own}


def _require_state_api() -> None:
    import ray
    from ray.util.state import list_nodes
    from ray.util.state.exception import RayStateApiException

    try:
        list_nodes(ray.get_runtime_context().gcs_address, limit=1, timeout=30)
    except RayStateApiException as error:
        raise BadInput(
            f"the cluster's dashboard must run where trials have several workers, but: {error}. "
            "Start the head with it, or train with --workers 1."
        ) from None


def disconnect() -> None:
    """Leave the cluster; a local one of our own ends."""
    import ray

    ray.shutdown()


def refuse_hidden_root(root: Path) -> None:
    """Refuse a workspace that another node of the cluster cannot see.

    Raises:
        BadInput: A node does not find a file that the driver has just written there.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    root.mkdir(parents=True, exist_ok=True)
    probe = root / f".seen-{os.getpid()}"
    probe.touch()

    try:
        for node in nodes:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            on_node = ray.remote(_exists).options(num_cpus=0, scheduling_strategy=where)
            seen = ray.get(on_node.remote(str(probe)), timeout=120)
            require(
                seen,
                "every node sees the workspace",
                root=str(root),
                node=node[:8],
                remedy="Give a folder on a shared file system with --root.",
            )
    finally:
        probe.unlink(missing_ok=True)


def _exists(path: str) -> bool:
    return Path(path).exists()
