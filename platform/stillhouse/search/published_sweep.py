"""A sweep in the remote: its study and its journal are published after every trial, and a new head goes on.

What is published is the newest copy of the study, which is consistent, and the small files beside it. Trials
that were running keep their numbers and values, and continue from the published checkpoints of their stages.
What a tracking server has confirmed is not published: a new head sends the journal again, which changes
nothing where the runs are known, and makes them where they are not.
"""

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from stillhouse.core.artifacts import FETCHING, Workspace, locked
from stillhouse.core.console import say, warn
from stillhouse.core.databases import newest_copy
from stillhouse.core.errors import BadInput
from stillhouse.core.notes import SWEEPS
from stillhouse.core.remotes import Remote, files_in
from stillhouse.search.study_copies import FINISHED, STUDY, put_aside_study

_OF_THIS_NODE = ("tune/", "copies/", f"{STUDY}-", "confirmed.json", "journal.copy.jsonl")
"""Beginnings of the names of files that are of use to this node alone."""


_GROWING = ".jsonl"
"""Ending of the names of logs, which other threads write to."""


class PublishedSweep:
    """Keeps the folder of a sweep in the remote, if the workspace has one.

    Args:
        workspace: The workspace.
        folder: The sweep's folder.
    """

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.folder = workspace, folder
        self.key = f"{SWEEPS}/{folder.name}"
        self._reported = ""

    def restore(self) -> None:
        """Fetch the sweep's files, if the remote knows more finished trials than this node.

        Raises:
            Hindered: The remote does not answer, or what it has is damaged.
        """
        remote = self.workspace.remote
        files = None if remote is None else remote.listed(self.key)
        if remote is None or files is None:
            return
        study = self.folder / STUDY
        if study.exists():
            theirs = None if STUDY not in files else remote.read(f"{self.key}/{files[STUDY].place(STUDY)}")
            if theirs is None or _finished(theirs) <= _finished(study.read_bytes()):
                return
            put_aside_study(study)
        with locked(self.workspace.root / FETCHING / f"{self.key}.lock"):
            remote.fetch(self.key, self.folder, self.workspace.root / FETCHING / self.key)
        known = _finished(study.read_bytes()) if study.exists() else 0
        say(f"sweep {self.folder.name}: going on from the remote (finished trials: {known})")

    def publish(self) -> None:
        """Publish the sweep's files as they are; a remote that fails is reported, and the sweep goes on."""
        remote = self.workspace.remote
        if remote is None:
            return
        try:
            self._publish(remote)
            self._reported = ""
        except BadInput as error:
            if str(error) != self._reported:
                self._reported = str(error)
                warn(f"sweep {self.folder.name}: its study is on this node alone for now. {error}")

    def _publish(self, remote: Remote) -> None:
        names = [name for name in files_in(self.folder) if not name.startswith(_OF_THIS_NODE)]
        paths = {name: self.folder / name for name in names if name != STUDY}
        copy = newest_copy(self.folder / STUDY)
        if copy is not None:
            paths[STUDY] = copy
        with tempfile.TemporaryDirectory() as held:
            for name in [name for name in paths if name.endswith(_GROWING)]:
                # It must not grow between its checksum and its bytes.
                paths[name] = Path(shutil.copyfile(self.folder / name, Path(held) / name))
            remote.replace(paths, self.key)


def _finished(study: bytes) -> int:
    """Count the finished trials of a study; 0 for one that cannot be read."""
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(study)
            query = f"SELECT count(*) FROM trials WHERE state IN {FINISHED}"
            return int(database.execute(query).fetchone()[0])
    except sqlite3.Error:
        return 0
