"""A running stage in the remote: its checkpoints are published in the background; any node goes on from them.

A checkpoint is published with the metrics log as it was then, in the folder ``checkpoints/<stage>`` of the
remote, whose manifest comes last: what is found there is whole. The newest one wins, and is removed once the
stage is finished and published itself.
"""

import contextlib
import os
import shutil
import threading
import uuid
from pathlib import Path

from stillhouse.cluster.running import ray_runs
from stillhouse.core.artifacts import (
    CHECKPOINTS,
    FETCHING,
    Workspace,
    lock_of,
    locked,
    remove_leftovers,
    remove_unfinished,
)
from stillhouse.core.console import say, warn
from stillhouse.core.errors import BadInput
from stillhouse.core.remotes import Remote
from stillhouse.training import checkpoint
from stillhouse.training.metrics_log import NAME
from stillhouse.training.worker_mailbox import mailbox_of
from stillhouse.values.stage import Stage

_LAST_WORDS_SECONDS = 100.0
"""How long the end of a run waits for its last checkpoint to be published."""


class PublishedRun:
    """Keeps the checkpoints of a stage in the remote. One process of a run, its rank 0, does so."""

    def __init__(self, stage: Stage, workspace: Workspace, remote: Remote) -> None:
        self.stage, self.workspace, self.remote = stage, workspace, remote
        self.folder = workspace.place(stage)
        self.key = f"{CHECKPOINTS}/{self.folder.name}"
        self._waiting: Path | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._reported = ""

    def restore(self) -> bool:
        """Fetch the newest checkpoint, if it is newer than what this node has.

        Returns:
            Whether it was fetched. It may be damaged or another's as any, so `checkpoint.heal` comes next.

        Raises:
            Hindered: The remote does not answer, or what it has is damaged.
        """
        files = self.remote.listed(self.key)
        if files is None:
            return False
        newest = max((step for name in files if (step := checkpoint.step_of(Path(name))) >= 0), default=-1)
        if newest <= max(checkpoint.steps(self.folder), default=-1):
            return False
        say(f"  {self.stage.label}: going on from step {newest}, which another node has published")
        return self.remote.fetch(self.key, self.folder, self.workspace.root / FETCHING / self.key)

    def checkpoint(self) -> None:
        """Publish the checkpoints as they are now, in the background; one that still waits is replaced."""
        snapshot = self._snapshot()
        with self._changed:
            replaced, self._waiting = self._waiting, snapshot
            if self._thread is None:
                self._thread = threading.Thread(target=self._publish_waiting, daemon=True)
                self._thread.start()
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)

    def tell(self, examples: int) -> None:
        """Tell the other nodes of the cluster how many examples have been seen."""
        if ray_runs():
            # A cluster that does not answer ends what runs on it with a message of its own.
            with contextlib.suppress(Exception):
                mailbox_of(self.workspace, self.stage).note_seen(examples)

    def close(self) -> None:
        """Wait for the last checkpoint to be published."""
        thread = self._thread
        if thread is not None:
            thread.join(_LAST_WORDS_SECONDS)

    def last(self) -> None:
        """Let go of the checkpoint that waits, and wait for the one that is being published.

        Call it before the manifest is written, which removes the files that are being read.
        """
        with self._changed:
            dropped, self._waiting = self._waiting, None
        if dropped is not None:
            shutil.rmtree(dropped, ignore_errors=True)
        self.close()

    def finished(self) -> None:
        """Publish the finished stage, and remove its checkpoints.

        Raises:
            Hindered: The remote does not take it. The stage is finished here, and is published by the next
                process that asks for it.
        """
        self.workspace.publish(self.stage)
        self.remote.remove(self.key)

    def _snapshot(self) -> Path:
        """Link the checkpoints, which training may remove meanwhile, and copy the log, which grows."""
        folder = self.folder / f".publishing-{uuid.uuid4().hex}.tmp"
        (folder / CHECKPOINTS).mkdir(parents=True)
        for step in checkpoint.steps(self.folder):
            path = checkpoint.path_of(self.folder, step)
            try:
                os.link(path, folder / CHECKPOINTS / path.name)
            except OSError:  # not every file system has links
                shutil.copyfile(path, folder / CHECKPOINTS / path.name)
        if (self.folder / NAME).exists():
            shutil.copyfile(self.folder / NAME, folder / NAME)
        return folder

    def _publish_waiting(self) -> None:
        """Publish until nothing waits."""
        while True:
            with self._changed:
                snapshot, self._waiting = self._waiting, None
                if snapshot is None:
                    self._thread = None
                    return
            try:
                self._publish(snapshot)
            except BadInput as error:  # Training goes on: this node has its checkpoints.
                if str(error) != self._reported:
                    self._reported = str(error)
                    warn(f"{self.stage.label}: its checkpoints are on this node alone for now. {error}")
            except FileNotFoundError:  # The stage was finished meanwhile, which nobody waited for any longer.
                if snapshot.exists():
                    raise
            finally:
                shutil.rmtree(snapshot, ignore_errors=True)

    def _publish(self, snapshot: Path) -> None:
        paths = {p.relative_to(snapshot).as_posix(): p for p in snapshot.rglob("*") if p.is_file()}
        self.remote.replace(paths, self.key)


def published_run(stage: Stage, workspace: Workspace) -> PublishedRun | None:
    """Return what keeps a stage's checkpoints in the remote; None without a remote."""
    return None if workspace.remote is None else PublishedRun(stage, workspace, workspace.remote)


def abandon(stage: Stage, workspace: Workspace) -> bool:
    """Remove the checkpoints of a stage that nobody will resume, here and in the remote; its log stays.

    Returns:
        False if a process still trains the stage, so that nothing was removed.
    """
    folder = workspace.place(stage)
    try:
        with locked(lock_of(folder), wait=False):
            if not workspace.finished(stage):
                remove_leftovers(folder)
                remove_unfinished(folder)
                if workspace.remote is not None:
                    workspace.remote.remove(f"{CHECKPOINTS}/{folder.name}")
    except BadInput:
        return False
    return True
