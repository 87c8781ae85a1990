"""A limit for what a node keeps of a remote: the least recently used artifacts are dropped, none in use.

A process that asks for the path of an artifact holds a shared lock on it until the process ends, since files
are mapped or read long after they were opened. What any process of the node holds is never dropped, nor is
what the remote does not have.
"""

import contextlib
import math
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from stillhouse.core.errors import BadInput
from stillhouse.core.integrity import MANIFEST
from stillhouse.core.locks import ALONE, SHARED, lock, lock_file

LIMIT = "STILLHOUSE_CACHE_GB"
"""Environment variable: gigabytes (10^9 bytes) of artifacts that a node keeps; unset or 0 for no limit."""

_USED, _LOCK, _MAKING = ".used", ".cache.lock", ".lock"
_using: dict[Path, IO[str]] = {}
_guard = threading.Lock()


def limit_to(gigabytes: float | None) -> None:
    """Limit this node and the processes that it starts; None leaves the limit of the environment.

    Raises:
        BadInput: See `limit_bytes`.
    """
    if gigabytes is not None:
        os.environ[LIMIT] = str(gigabytes)
    limit_bytes()


def limit_bytes() -> float:
    """Return the limit of this node; infinite if there is none.

    Raises:
        BadInput: It is no number, or a negative one.
    """
    text = os.environ.get(LIMIT, "").strip() or "0"
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = math.nan
    if not 0 <= gigabytes < math.inf:
        raise BadInput(
            f"the limit of the cache must be a number of gigabytes, or 0 for none, but is {text!r}. Give it "
            f"with --cache-gb or {LIMIT}."
        )
    return gigabytes * 1e9 or math.inf


def use(folder: Path) -> None:
    """Keep an artifact of this node until this process ends, and note when it was used last."""
    marker = folder.with_name(f".{folder.name}{_USED}")
    with _guard:
        if marker not in _using:
            file = lock_file(marker)
            lock(file, SHARED, wait=True)
            _using[marker] = file
        os.utime(marker)


def make_room(root: Path, is_published: Callable[[str], bool]) -> None:
    """Drop the least recently used artifacts of a node until the rest is within its limit.

    Another process that makes room at the same time is left to it. What is published is asked for by
    ``<kind>/<name>``.
    """
    limit = limit_bytes()
    if limit == math.inf:
        return
    with contextlib.ExitStack() as held:
        if not _held_alone(root / _LOCK, held):
            return
        sizes = {path.parent: _bytes(path.parent) for path in root.glob(f"*/*/{MANIFEST}")}
        over = sum(sizes.values()) - limit
        for folder in sorted(sizes, key=_last_used):
            if over <= 0:
                break
            with contextlib.ExitStack() as free:
                markers = (folder.with_name(f".{folder.name}{_USED}"), folder.with_suffix(_MAKING))
                if not all(_held_alone(marker, free) for marker in markers):
                    continue
                if not is_published(f"{folder.parent.name}/{folder.name}"):
                    continue
                # The manifest first: what an interrupted removal leaves counts as unfinished.
                (folder / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
                over -= sizes[folder]


def has_room(root: Path, size: int) -> bool:
    """Return whether a node may keep so many bytes more: within its limit, and on its disk."""
    within = limit_bytes() == math.inf or _bytes(root) + size <= limit_bytes()
    return within and shutil.disk_usage(root).free >= size


def _held_alone(path: Path, held: contextlib.ExitStack) -> bool:
    """Lock a file for the rest of a block; False if any process holds it, this one included."""
    return lock(held.enter_context(lock_file(path)), ALONE)


def _last_used(folder: Path) -> float:
    times = (folder.with_name(f".{folder.name}{_USED}"), folder / MANIFEST)
    return max((path.stat().st_mtime for path in times if path.exists()), default=0.0)


def _bytes(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process may be writing there
            found += path.stat().st_size if path.is_file() else 0
    return found
