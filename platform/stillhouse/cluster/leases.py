"""Makes artifacts: in one process of a node by a lock of its file, on one node of a cluster by a lease.

Nodes that share a file system share its locks. Those that share a remote alone do not see each other's, and
would make an artifact twice. They ask a named actor of the cluster instead, which frees what a process held
that has not been heard of for a while. An artifact that two make nevertheless, because that actor was lost,
is the same bytes twice: leases save work, and nothing relies on them for correctness.
"""

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stillhouse.cluster.nodes import HEAD
from stillhouse.cluster.running import ray_runs
from stillhouse.core.artifacts import (
    Artifact,
    Workspace,
    lock_of,
    locked,
    remove_leftovers,
    remove_unfinished,
    write_manifest,
)
from stillhouse.core.console import doing, warn
from stillhouse.core.identity import canonical
from stillhouse.core.repeating import repeated

LASTS_S = 30.0
"""Seconds after which a lease is free whose holder was not heard of."""
_RENEW_S, _ASK_S = 5.0, 1.0
_ANSWER_S = 60.0
_NAME = "stillhouse-leases"


def make_once(workspace: Workspace, artifact: Artifact, make: Callable[[Path], dict[str, Any]]) -> Path:
    """Return the folder of a finished artifact, which is made first if there is none; other processes wait.

    What a killed process left is removed before, but for its finished parts. ``make`` writes the files into
    the folder, and returns what the manifest, which is written last, says beside the plan.
    """
    if not workspace.finished(artifact):
        with making(workspace, artifact):
            if not workspace.finished(artifact):
                folder = workspace.place(artifact)
                remove_leftovers(folder)
                write_manifest(folder, {**make(folder), "plan": canonical(artifact)})
                workspace.publish(artifact)
                remove_unfinished(folder)
    return workspace.path(artifact)


@contextlib.contextmanager
def making(workspace: Workspace, artifact: Artifact) -> Iterator[None]:
    """Hold an artifact for whoever makes it; others wait, and then look whether it is finished.

    The other nodes of a cluster are kept out only if the workspace has a remote.
    """
    with locked(lock_of(workspace.place(artifact))):
        if workspace.remote is None or not _on_cluster():
            yield
            return
        with _leased(f"{workspace.remote}/{workspace.key(artifact)}"):
            yield


class Leases:
    """The holder of each key, and until when it holds it; an actor of the cluster, one call at a time."""

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._held: dict[str, tuple[str, float, str]] = {}

    def take(self, key: str, holder: str, who: str) -> str:
        """Take a lease, or renew one's own; the answer is empty, or says who holds it."""
        now = time.monotonic()
        other, until, name = self._held.get(key, ("", 0.0, ""))
        if other not in ("", holder) and now < until:
            return name
        self._held[key] = holder, now + self._lasts_s, who
        return ""

    def give(self, key: str, holder: str) -> None:
        """Free a lease, if it is the holder's."""
        if self._held.get(key, ("",))[0] == holder:
            del self._held[key]


def _on_cluster() -> bool:
    """Return whether this process belongs to a Ray cluster of several nodes; Ray is not imported for it."""
    if not ray_runs():
        return False
    import ray

    return len(ray.nodes()) > 1


@contextlib.contextmanager
def _leased(key: str) -> Iterator[None]:
    """Hold the lease of a key, renewed in the background; without one if the actor does not answer."""
    holder = uuid.uuid4().hex
    try:
        actor = _actor()
        if other := _ask(actor, key, holder):
            with doing(f"waiting for {other}, which makes {key.rpartition('/')[2]}"):
                while _ask(actor, key, holder):
                    time.sleep(_ASK_S)
    except Exception as error:
        warn(f"note: no lease for {key}, so that another node may make it too: {type(error).__name__}")
        yield
        return

    try:
        # A lease that is not renewed costs another node's time, and no result.
        with repeated(lambda: _ask(actor, key, holder), every_s=_RENEW_S, name="lease"):
            yield
    finally:
        with contextlib.suppress(Exception):
            actor.give.remote(key, holder)


def _ask(actor: Any, key: str, holder: str) -> str:
    import ray

    who = f"process {os.getpid()} of {socket.gethostname()}"
    return str(ray.get(actor.take.remote(key, holder, who), timeout=_ANSWER_S))


def _actor() -> Any:
    """The cluster's actor, started by whoever asks first; it stays as long as the cluster."""
    import ray

    on_head = {HEAD: 0.001} if any(HEAD in node["Resources"] for node in ray.nodes() if node["Alive"]) else {}
    return (
        ray.remote(Leases)
        .options(
            name=_NAME,
            namespace=_NAME,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            resources=on_head,
            max_restarts=-1,
        )
        .remote(LASTS_S)
    )
