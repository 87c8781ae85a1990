"""A sweep where others see it: its study and its journal are published after every trial.

A new head goes on from the remote; in a database a team sees the studies of all its sweeps.

What is published is the backup of the study, which is consistent, and the small files beside it. Trials
that were running keep their numbers and values, and continue from the published checkpoints of their stages.
What a tracking server has confirmed is not published: a new head sends the journal again, which changes
nothing where the runs are known, and makes them where they are not.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import FETCHING, Workspace, locked
from stillhouse.core.console import say, warn
from stillhouse.core.errors import BadInput
from stillhouse.core.notes import SWEEPS
from stillhouse.core.remotes import Remote, files_in
from stillhouse.search.options import STUDY_DATABASE
from stillhouse.search.study_backup import STUDIES, ended_trials, ended_trials_of, put_aside_study

if TYPE_CHECKING:
    from stillhouse.search.study_in_database import StudyInDatabase

_OF_THIS_NODE = ("tune/", *STUDIES.values(), *(f"{study}-" for study in STUDIES), "confirmed.json")
"""Beginnings of the names of files that are of use to this node alone."""
_GROWING = ".jsonl"
"""Ending of the names of logs, which other threads write to."""


class PublishedSweep:
    """Keeps the folder of a sweep in the remote and its study in a database, if there are such.

    Raises:
        BadInput: The environment names a database that is no Postgres, or has no driver installed.
    """

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.folder = workspace, folder
        self.key = f"{SWEEPS}/{folder.name}"
        self._reported = ""
        self.database = _database(folder)

    def restore(self) -> None:
        """Fetch the sweep's files, if the remote knows more finished trials than this node.

        Raises:
            Hindered: The remote does not answer, or what it has is damaged.
        """
        remote = self.workspace.remote
        files = None if remote is None else remote.listed(self.key)
        if remote is None or files is None:
            return
        studies = [self.folder / study for study in STUDIES]
        if studies[0].exists():
            there = [study for study in STUDIES if study in files]
            theirs = [remote.read(f"{self.key}/{files[study].place(study)}") or b"" for study in there]
            if sum(map(ended_trials_of, theirs)) <= sum(map(ended_trials, studies)):
                return
            for study in studies:
                put_aside_study(study)
        with locked(self.workspace.root / FETCHING / f"{self.key}.lock"):
            remote.fetch(self.key, self.folder, self.workspace.root / FETCHING / self.key)
        ended = ended_trials(studies[0])
        say(f"sweep {self.folder.name}: going on from the remote (finished trials: {ended})")

    def publish(self) -> None:
        """Publish the sweep as it is; a remote or database that fails is reported, and the sweep goes on."""
        if self.database is not None:
            self.database.update()
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
        paths = {name: self.folder / name for name in names if name not in STUDIES}
        backups = {study: self.folder / backup for study, backup in STUDIES.items()}
        paths |= {study: backup for study, backup in backups.items() if backup.exists()}
        with tempfile.TemporaryDirectory() as held:
            for name in [name for name in paths if name.endswith(_GROWING)]:
                # It must not grow between its checksum and its bytes.
                paths[name] = Path(shutil.copyfile(self.folder / name, Path(held) / name))
            remote.replace(paths, self.key)


def _database(folder: Path) -> "StudyInDatabase | None":
    url = os.environ.get(STUDY_DATABASE, "").strip()
    if not url:
        return None
    from stillhouse.search.study_in_database import StudyInDatabase  # Loads Optuna, for those who use it.

    return StudyInDatabase(url, folder)
