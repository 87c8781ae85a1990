"""A workspace with one writer, and Ray unless the work is local: what every command and call works in."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from stillhouse.cluster.connection import connect, disconnect
from stillhouse.cluster.resources import cluster_device
from stillhouse.core.artifacts import Workspace, locked, remove_leftovers
from stillhouse.core.console import diverted_chatter, doing, never_silent
from stillhouse.core.signals import signals_kept

_NOTES = ("sources", "experiments")
"""Folders of small files that only the workspace's writer makes."""


@contextlib.contextmanager
def session(
    root: Path,
    *,
    device: str,
    local: bool,
    address: str | None = None,
    nested: bool = False,
    verbose: bool = False,
    check: Callable[[], None] | None = None,
) -> Iterator[tuple[Workspace, str]]:
    """Yield the workspace, locked, and the device.

    Args:
        root: The workspace's folder.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        local: Whether to work in this process alone; otherwise Ray is joined or started, and left at the end.
        address: Address of a Ray cluster; None takes the job's, or starts a local one.
        nested: Whether training runs will span several workers.
        verbose: Whether the output of the libraries is shown.
        check: Called once the workspace is locked, before Ray starts, to refuse what contradicts the
            workspace's content; None checks nothing.

    Raises:
        BadInput: Another run writes the workspace, or ``check`` refuses.
    """
    workspace = Workspace(root)
    workspace.claim()
    held = f"{root} must have one writer, but another run is going on there. Wait for it, or give --root."
    with (
        locked(root / ".lock", wait=False, held=held),
        diverted_chatter(root / "logs", verbose=verbose),
        never_silent(),
        doing("working"),
    ):
        # No other process writes files here now; folders of artifacts have locks of their own.
        for folder in (root, *(root / name for name in _NOTES)):
            remove_leftovers(folder)
        if check is not None:
            check()
        try:
            if not local:
                with signals_kept(), doing("starting Ray, or joining its cluster"):
                    connect(address, nested=nested, verbose=verbose)
            yield workspace, cluster_device(device)
        finally:
            if not local:
                disconnect()
