"""A workspace, and Ray unless the work is local: what every command and call works in.

Several commands may work in one workspace: who makes an artifact holds its lock, and the others wait for it.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stillhouse.cluster.connection import (
    RUNS,
    connect,
    disconnect,
    joins,
    refuse_hidden_root,
    warn_of_hidden_root,
)
from stillhouse.cluster.membership import Node, nodes_watched
from stillhouse.cluster.resources import Need, cluster_device
from stillhouse.cluster.slots import wait_for_room
from stillhouse.core.artifacts import (
    CHECKPOINTS,
    FORMAT,
    LOCK,
    MANIFEST,
    Workspace,
    remove_leftovers,
    remove_unfinished,
    root_folder,
    shared,
)
from stillhouse.core.cache import limit_to
from stillhouse.core.console import diverted_chatter, doing, never_silent
from stillhouse.core.devices import heed_quota, require_device, resolve_device
from stillhouse.core.errors import require
from stillhouse.core.notes import NOTES, STAGES, fetch_notes, publish_notes
from stillhouse.core.remotes import default_remote, remote_at
from stillhouse.core.signals import signals_kept
from stillhouse.training.where import Where, threads_alone

_TIDYING_S = 10.0
"""How long to wait for another command that tidies the workspace up."""


def opened_workspace(root: Path, remote: str = "") -> Workspace:
    """Return the workspace of a folder, with its remote if an address is given.

    Raises:
        BadInput: The remote cannot be read and written.
    """
    place = remote_at(remote)
    if place is not None:
        place.check(FORMAT)
    return Workspace(root, place)


def need_of(resources: Mapping[str, Any]) -> Need:
    """The resources of one training, of `Resources`."""
    cpus = resources.get("cpus_per_worker")
    return Need(resources.get("workers", 1), 1.0 if cpus is None else cpus, resources.get("gpus_per_worker"))


def where_of(resources: Mapping[str, Any], device: str, *, local: bool) -> Where:
    """Return the place of one training: with all cores if it has the machine, unless CPUs are given."""
    workers, cpus = resources.get("workers", 1), resources.get("cpus_per_worker")
    threads = threads_alone(local=local, workers=workers) if cpus is None else max(1, int(cpus))
    return Where(device=device, threads=threads, workers=workers)


def device_of(resources: Mapping[str, Any], *, local: bool = False) -> str:
    """The device of `Resources`. A driver that joins a cluster leaves the choice to the cluster."""
    device = str(resources.get("device", "auto"))
    if not local and joins(resources.get("address")):
        return device
    device = resolve_device(device)
    require_device(device)
    return device


def session_of(
    resources: Mapping[str, Any], *, local: bool
) -> contextlib.AbstractContextManager[tuple[Workspace, str]]:
    """The workspace and the device of `Resources`, in which what is left out or None has its default.

    Raises:
        BadInput: An option that Ray alone reads is given for work that does not use it.
    """
    for name in ("address", "actors", "gpus_per_worker", "wait_for_nodes"):
        given = resources.get(name)
        require(
            not local or not given,
            f"--{name.replace('_', '-')} must be given only where Ray is used",
            **{name: given},
            remedy="Leave it out, or leave out --local; `evaluate` uses Ray with --search-shards above 1.",
        )
    limit_to(resources.get("cache_gb"))
    remote = resources.get("remote")
    return session(
        root_folder(resources.get("root")),
        device=device_of(resources, local=local),
        local=local,
        address=resources.get("address"),
        need=need_of(resources),
        wait_s=resources.get("wait_for_nodes"),
        verbose=resources.get("verbose", False),
        remote=default_remote() if remote is None else str(remote),
    )


@contextlib.contextmanager
def session(
    root: Path,
    *,
    device: str,
    local: bool,
    address: str | None = None,
    need: Need | None = None,
    wait_s: float | None = None,
    verbose: bool = False,
    check: Callable[[], None] | None = None,
    remote: str = "",
) -> Iterator[tuple[Workspace, str]]:
    """Yield the workspace and the device.

    Args:
        root: The workspace's folder.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        local: Whether to work in this process alone; otherwise Ray is joined or started, and left at the end.
        address: Address of a Ray cluster; None takes the job's, or starts a local one.
        need: Resources of one training run, for which nodes are waited for; None waits for none.
        wait_s: Seconds to wait for them at most; None takes what suits the cluster, see `wait_for_room`.
        verbose: Whether the output of the libraries is shown.
        check: Called before Ray starts, to refuse what contradicts the workspace; None checks nothing.
        remote: Address of the remote in which artifacts are kept for all nodes; empty for none.

    Raises:
        BadInput: The remote cannot be used, ``check`` refuses, a run needs more than the cluster has or gets
            in time, or a node cannot share the workspace and there is no remote.
    """
    workspace = opened_workspace(root, remote)
    workspace.claim()
    heed_quota()
    with (
        shared(
            root / LOCK,
            first=lambda: _tidy(root),
            # What a trial left that took too long to stop and was ended by Tune.
            last=lambda: shutil.rmtree(root / RUNS, ignore_errors=True),
            seconds=_TIDYING_S,
        ),
        diverted_chatter(root / "logs", verbose=verbose),
        never_silent(),
        doing("working"),
    ):
        fetch_notes(workspace)
        remove_outlived(workspace)
        if check is not None:
            check()
        try:
            if not local:
                with signals_kept(), doing("starting Ray, or joining its cluster"):
                    connect(address, nested=need is not None and need.nested, verbose=verbose)
            with contextlib.ExitStack() as watching:
                if not local and joins(address):
                    watching.enter_context(nodes_watched(lambda node: _greet(node, root, bool(remote))))
                found = cluster_device(device)
                if need is not None and not local:
                    wait_for_room(need.on(found), wait_s, joined=joins(address))
                if not (remote or local):
                    refuse_hidden_root(root)
                yield workspace, found
            publish_notes(workspace)
        finally:
            if not local:
                disconnect()


def remove_outlived(workspace: Workspace) -> None:
    """Remove the remote's checkpoints of published stages, which a process that was killed between has left.

    Raises:
        Hindered: The remote does not answer.
    """
    if (remote := workspace.remote) is None:
        return
    for name in remote.folders(CHECKPOINTS):
        if remote.has(f"{STAGES}/{name}"):
            remote.remove(f"{CHECKPOINTS}/{name}")


def _tidy(root: Path) -> None:
    """Remove what killed commands left; no other process may write files of finished artifacts meanwhile."""
    finished = [manifest.parent for manifest in root.glob(f"*/*/{MANIFEST}")]
    for folder in (root, *(root / name for name in NOTES), *finished):
        remove_leftovers(folder)
    for folder in finished:  # Its maker may have ended between the manifest and this.
        remove_unfinished(folder)


def _greet(node: Node, root: Path, has_remote: bool) -> None:
    """A node that joins must see the workspace, unless what it needs is in a remote."""
    if not has_remote:
        warn_of_hidden_root(node, root)
