"""Joining a Ray cluster, or starting a local one."""

import contextlib
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stillhouse.cluster.membership import Node, nodes_alive
from stillhouse.cluster.probe import no_cluster, require_answer
from stillhouse.core.artifacts import locked
from stillhouse.core.cache import LIMIT
from stillhouse.core.console import private_variables, warn
from stillhouse.core.errors import BadInput, Hindered, require
from stillhouse.core.integrity import VERIFY
from stillhouse.core.machine import cores, ranks_on_loopback, variables_set
from stillhouse.core.remotes import PATIENCE

_PACKAGE = Path(__file__).resolve().parent.parent
_FOR_WORKERS = ("TUNE_FUNCTION_THREAD_TIMEOUT_S", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S")
RUNS = "ray"
"""Folder of a workspace in which Ray Train keeps what it needs during a run, and nothing afterwards."""
_TOO_SLOW = "timed out during startup"
_NEW_NODES_SECONDS = 900
"""How long nested workers wait for nodes from an autoscaler; Ray's default of a minute is too short."""
_ANSWER_SECONDS = 15
"""How long a cluster may take to answer."""
_SHARE = "Give a folder on a shared file system with --root, or keep it in a --remote."
_LOCKS = "every node of the cluster must see the locks of files"
_SHARE_WITH_LOCKS = "Mount it with locks across nodes (NFS 4, Lustre with -o flock), or give a --remote."
_LOOK_SECONDS = 0.1
_leaving = threading.Event()
"""Ends the watch over the newest local Ray; each has an event of its own."""
_LAST_WORDS_SECONDS = 150
"""How long a stopped trial may wait for its nested workers to write a checkpoint."""


def connect(address: str | None, *, nested: bool, verbose: bool) -> None:
    """Join the cluster at ``address`` (or the one that this job runs in), else start a local one.

    The local cluster is always new, even if another one runs on the machine; it listens on loopback only, and
    ends with this process, however that ends. The dashboard is on if trials nest Ray Train runs, whose
    placement groups are freed with its help.

    Raises:
        BadInput: No cluster answers at the address, or its State API does not, which nested runs need.
    """
    import ray

    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", str(_LAST_WORDS_SECONDS if nested else 10))
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(_NEW_NODES_SECONDS))
    chatter = {"log_to_driver": verbose, "logging_level": "INFO" if verbose else "ERROR"}
    if not joins(address):
        _share_code()
        with _on_loopback():
            _start_local(lambda: ray.init(address="local", include_dashboard=nested, **chatter))
        _end_with_ray()
        return
    where = os.environ.get("RAY_ADDRESS", "auto") if address in (None, "auto") else str(address)
    require_answer(where, seconds=_ANSWER_SECONDS)
    try:
        ray.init(address=address or "auto", runtime_env=_workers_environment(), **chatter)
    except ConnectionError as error:
        raise no_cluster(where, error) from None
    if nested:
        _require_state_api()


def _start_local(start: Callable[[], object], *, attempts: int = 3) -> None:
    """Start a local cluster; Ray gives its node half a minute, which a busy machine may exceed.

    Raises:
        Hindered: It did not start in any attempt.
    """
    for attempt in range(1, attempts + 1):
        try:
            start()
            return
        except Exception as error:
            if _TOO_SLOW not in str(error):
                raise
        _end_left_behind()
        load = f"a load of {os.getloadavg()[0]:.1f} on {cores():.3g} cores"
        if attempt < attempts:
            warn(f"Ray did not start in time: the machine is busy ({load}). Trying once more.")
    raise Hindered(
        f"Ray must start within its limit, but did not in {attempts} attempts: the machine is busy ({load}). "
        "Wait for the other programs to end and run the same command again, or work without Ray (--local)."
    )


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Let the node that starts within this block have the address 127.0.0.1.

    Ray replaces a loopback address in ``ray.init`` by that of the machine's network, except where it takes
    no part in a cluster, which is what this setting says; then every process of it binds to loopback.
    """
    from ray._private import ray_constants

    enabled = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with variables_set({ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0"} | ranks_on_loopback()):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled


def _end_left_behind() -> None:
    """End what Ray has started below this process; other children stay."""
    import ray  # whose folder has psutil
    from psutil import Error, Process

    program = str(Path(ray.__file__).parent)
    for child in Process().children(recursive=True):
        with contextlib.suppress(Error):
            if any(word.startswith(("ray::", program)) for word in child.cmdline()):
                child.kill()


def joins(address: str | None) -> bool:
    """Return whether a command joins an existing cluster instead of starting a local one."""
    return address is not None or bool(os.environ.get("RAY_ADDRESS"))


def _share_code() -> None:
    """Let child processes find the package if it is not installed."""
    folder = str(_PACKAGE.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _PACKAGE.parent.name not in ("site-packages", "dist-packages") and folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, paths)])


def _workers_environment() -> dict[str, Any]:
    """The package and this process's relevant variables for remote workers; a job's own take precedence."""
    variables = {name: value for name, value in private_variables().items() if not name.startswith("RAY_")}
    variables |= {name: os.environ[name] for name in _FOR_WORKERS}
    variables |= {name: os.environ[name] for name in (VERIFY, LIMIT, PATIENCE) if name in os.environ}
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env") or {}
    added = {name: value for name, value in variables.items() if name not in (job.get("env_vars") or {})}
    return {"env_vars": added} | ({} if "py_modules" in job else {"py_modules": [str(_PACKAGE)]})


def _require_state_api() -> None:
    import ray
    from ray.util.state import list_nodes
    from ray.util.state.exception import RayStateApiException

    try:
        list_nodes(ray.get_runtime_context().gcs_address, limit=1, timeout=30)
    except RayStateApiException as error:
        raise BadInput(
            f"the cluster's dashboard must run when trials have several workers, but: {error}. "
            "Start the head with the dashboard, or train with --workers 1."
        ) from None


def _end_with_ray() -> None:
    """End this process, with a message and exit code 2, when a process of the local Ray is lost.

    Ray itself ends the process without a word, after up to a minute.
    """
    global _leaving
    from ray._private import ray_constants, worker

    _leaving = leaving = threading.Event()
    processes = worker._global_node.all_processes
    watched = {
        kind: [each.process for each in processes.get(kind, ())]
        for kind in (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER)
    }

    def watch() -> None:
        while not leaving.wait(_LOOK_SECONDS):
            for kind, started in watched.items():
                if any(process.poll() is not None for process in started) and not leaving.is_set():
                    warn(
                        f"Ray's process {kind} has ended: something killed it, or memory ran out. Run the "
                        "same command again: it resumes from here."
                    )
                    os._exit(2)

    threading.Thread(target=watch, name="local Ray", daemon=True).start()


def disconnect() -> None:
    """Leave the cluster; a local one ends."""
    import ray

    _leaving.set()
    ray.shutdown()


def refuse_hidden_root(root: Path) -> None:
    """Refuse a workspace that another node of the cluster cannot share.

    Raises:
        BadInput: A node does not find a file that the driver has just written there, or does not find it
            locked though the driver has locked it.
    """
    nodes = nodes_alive()
    if len(nodes) < 2:
        return
    for node in nodes:
        seen = shares(node, root)
        if seen is None:
            continue
        require(
            seen.found,
            "every node of the cluster must see the workspace",
            root=str(root),
            node=node.name,
            remedy=_SHARE,
        )
        require(seen.locked, _LOCKS, root=str(root), node=node.name, remedy=_SHARE_WITH_LOCKS)


def warn_of_hidden_root(node: Node, root: Path) -> None:
    """Warn if a node that has joined later cannot share the workspace."""
    seen = shares(node, root)
    if seen is None:
        return
    if not seen.found:
        warn(f"node {node.name} does not see the workspace {root}: what is placed there fails. {_SHARE}")
    elif not seen.locked:
        warn(f"{_LOCKS}, but node {node.name} does not see those in {root}. {_SHARE_WITH_LOCKS}")


class Seen(NamedTuple):
    """Whether a node finds a file that this process has written and locked, and finds it locked."""

    found: bool
    locked: bool


def shares(node: Node, root: Path) -> Seen | None:
    """Return a node's view of a file that this process writes and locks; None if the node has gone."""
    import ray
    from ray.exceptions import RayError, TaskUnschedulableError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Of its own: a node that joins is asked by a thread, maybe while the start of the command asks it too.
    probe = root / f".seen-{uuid.uuid4().hex}.tmp"
    try:
        with locked(probe):
            where = NodeAffinitySchedulingStrategy(node.id, soft=False)
            on_node = ray.remote(_seen).options(num_cpus=0, scheduling_strategy=where)
            return Seen(*ray.get(on_node.remote(str(probe)), timeout=120))
    except TaskUnschedulableError:  # The list of nodes may still have one that no longer takes tasks.
        return None
    except RayError:
        if node.id in {other.id for other in nodes_alive()}:
            raise
        return None
    finally:
        probe.unlink(missing_ok=True)


def _seen(path: str) -> tuple[bool, bool]:
    if not Path(path).exists():
        return False, False
    try:
        with locked(Path(path), wait=False):
            return True, False
    except BadInput:
        return True, True
