"""Makes artifacts: in one process of a node by a lock of its file, on one of all nodes by a note in a remote.

Nodes that share a file system share its locks. Those that share a remote alone, of one cluster or of several,
do not see each other's, and would make an artifact twice. So they write there what they make,
``making/<key>``, and renew it; a note that stays as it is for a while is nobody's. An artifact that two make
nevertheless is the same bytes twice: notes save work, and nothing relies on them for correctness.
"""

import contextlib
import itertools
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import (
    Artifact,
    Workspace,
    lock_of,
    locked,
    remove_leftovers,
    remove_unfinished,
    write_manifest,
)
from stillhouse.core.console import doing
from stillhouse.core.identity import canonical
from stillhouse.core.remotes import Remote
from stillhouse.core.repeating import repeated

LASTS_S = 30.0
"""Seconds after which a note is nobody's that was not renewed."""
_RENEW_S, _ASK_S = 5.0, 1.0
_SETTLE_S = 0.5
"""Seconds after which a note is read again: of those who write at once, the last one has it."""


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
    """Hold an artifact for whoever makes it; others wait, and then look whether it is finished."""
    with locked(lock_of(workspace.place(artifact))), contextlib.ExitStack() as stack:
        if workspace.remote is not None:
            stack.enter_context(_noted(workspace.remote, workspace.key(artifact), workspace.root))
        yield


@contextlib.contextmanager
def _noted(remote: Remote, key: str, root: Path) -> Iterator[None]:
    """Say in the remote that this process makes an artifact, once no other does; its lock is held here."""
    name, place = f"making/{key}", f"{socket.gethostname()}:{root}"
    own = {"holder": uuid.uuid4().hex, "who": f"process {os.getpid()} of {socket.gethostname()}"}
    times = itertools.count()

    def renew() -> None:
        remote.write(name, json.dumps({**own, "place": place, "renewed": next(times)}).encode())

    while True:
        _wait_for_others(remote, name, place)
        renew()
        time.sleep(_SETTLE_S)
        if _read(remote, name).get("holder") == own["holder"]:
            break
    try:
        with repeated(renew, every_s=_RENEW_S, name="lease"):
            yield
    finally:
        remote.remove(name)


def _wait_for_others(remote: Remote, name: str, place: str) -> None:
    """Wait until a note is removed, or nobody renews it; whoever wrote one at this place has ended."""
    with contextlib.ExitStack() as said:
        seen: dict[str, Any] = {}
        since = 0.0
        while (found := _read(remote, name)) and found.get("place") != place:
            if found != seen:
                said.close()
                said.enter_context(doing(f"waiting for {found.get('who')}, which makes {Path(name).name}"))
                seen, since = found, time.monotonic()
            elif time.monotonic() - since > LASTS_S:
                return
            time.sleep(_ASK_S)


def _read(remote: Remote, name: str) -> dict[str, Any]:
    """A note; empty if there is none that can be read."""
    with contextlib.suppress(ValueError):
        found = json.loads(remote.read(name) or b"{}")
        return found if isinstance(found, dict) else {}
    return {}
