"""Shards of a published store that a node holds for as long as they are read, and no longer."""

import contextlib
import functools
import math
import weakref
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from stillhouse.core.artifacts import MANIFEST, lock_of_file, locked, shared
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.core.remotes import File, Remote
from stillhouse.teachers.build_state import QUARANTINE

_AT_ONCE = 2
_Held = dict[str, "Future[contextlib.ExitStack]"]


class StreamedShards:
    """The shards of a store that this process holds, as files of this node.

    The processes of a node share the files: the first one that holds a shard fetches it, and the last one
    that lets it go removes it. What a killed process left is removed by the next one that opens the store.
    The folder holds the files, the store's manifest among them.

    Raises:
        Hindered: The store is not there, is damaged, or the remote does not answer.
    """

    def __init__(self, remote: Remote, key: str, folder: Path) -> None:
        self.folder, self._remote, self._key = folder, remote, key
        files = remote.listed(key)
        if files is None:
            raise Hindered(f"a store must be complete to be read, but {remote}/{key} has no {MANIFEST}.")
        self._files: dict[str, File] = files
        for name in (QUARANTINE, MANIFEST):
            with locked(lock_of_file(folder / name)):
                remote.fetch_file(key, name, files[name], folder / name)
        _remove_unheld(folder)
        self._held: _Held = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="shards")
        weakref.finalize(self, _let_go, self._held, self._pool)

    def __reduce__(self) -> tuple[type["StreamedShards"], tuple[Remote, str, Path]]:
        return StreamedShards, (self._remote, self._key, self.folder)

    def hold(self, names: Iterable[str]) -> None:
        """Hold some shards and let go of all others; what is not here is fetched in the background."""
        wanted = list(names)
        for name in self._held.keys() - set(wanted):
            _release(self._held.pop(name))
        for name in wanted:
            if name not in self._held:
                fetch = functools.partial(self._remote.fetch_file, self._key, name, self._files[name])
                self._held[name] = self._pool.submit(_take, self.folder / name, fetch)

    def path(self, name: str) -> Path:
        """Return the file of a shard that is held, once it is here.

        Raises:
            Hindered: It is damaged, the remote does not answer, or the disk is full.
        """
        self._held[name].result()
        return self.folder / name


def _take(path: Path, fetch: functools.partial[None]) -> contextlib.ExitStack:
    """Hold a file together with the other processes of the node, the first of which fetches it."""
    fetched, let_go = functools.partial(fetch, path), functools.partial(path.unlink, missing_ok=True)
    while True:
        with contextlib.ExitStack() as held:
            held.enter_context(shared(lock_of_file(path), first=fetched, last=let_go, seconds=math.inf))
            # Whoever had the lock for itself may have removed the file instead of fetching it.
            if path.exists():
                return held.pop_all()


def _release(taken: "Future[contextlib.ExitStack]") -> None:
    """Let go of a shard, or of one that is still on its way as soon as it is here."""

    def close(done: "Future[contextlib.ExitStack]") -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    taken.cancel()
    taken.add_done_callback(close)


def _let_go(held: _Held, pool: ThreadPoolExecutor) -> None:
    while held:
        _release(held.popitem()[1])
    pool.shutdown()


def _remove_unheld(folder: Path) -> None:
    """Remove the shards that killed processes held, and what was on its way."""
    for path in [*folder.glob("part-*.arrow"), *folder.glob(".part-*.tmp")]:
        shard = path.with_name(path.name.removeprefix(".").removesuffix(".tmp"))
        with contextlib.suppress(BadInput), locked(lock_of_file(shard), wait=False):
            path.unlink(missing_ok=True)
