"""A sweep's study in a database, where a team sees the studies of all its sweeps.

The search goes on from its file. The trials that have ended are added to the database at the end of each.
"""

from itertools import takewhile
from pathlib import Path
from typing import Any

from optuna.exceptions import OptunaError
from optuna.storages import RDBStorage
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from stillhouse.core.console import warn
from stillhouse.core.errors import BadInput, require
from stillhouse.core.notes import SWEEP_NOTE, read_note
from stillhouse.core.redaction import redacted
from stillhouse.search.options import STUDY_DATABASE
from stillhouse.search.studies import copy_attributes, study_read
from stillhouse.search.study_backup import STUDY
from stillhouse.tracking.location import require_driver

_OPTIONS: dict[str, Any] = {"poolclass": NullPool, "connect_args": {"connect_timeout": 10}}
"""A database that does not answer costs ten seconds at the end of a trial."""
_IDENTITY = "sweep"
"""Attribute of the study in the database: the sweep that it is of."""


class StudyInDatabase:
    """The study of a sweep in a Postgres, where it has the name of the sweep's folder.

    Raises:
        BadInput: It is no address of a Postgres, or its driver is not installed.
    """

    def __init__(self, url: str, folder: Path) -> None:
        require(
            url.startswith(("postgresql://", "postgresql+")) and "://" in url,
            f"{STUDY_DATABASE} must be the URL of a Postgres",
            given=redacted(url),
            remedy="Such as postgresql+psycopg://user@host/database; unset, the study is in a file alone.",
        )
        require_driver(url, STUDY_DATABASE)
        self.url, self.folder = url, folder
        self._reported = ""

    def update(self) -> None:
        """Add the trials that have ended; a database that fails is reported once, and the sweep goes on."""
        try:
            self._update()
            self._reported = ""
        except (SQLAlchemyError, OptunaError, OSError, BadInput) as error:
            problem = _in_a_line(error)
            if problem != self._reported:
                warn(
                    f"sweep {self.folder.name}: its study in {self.url} is behind the one in the "
                    f"workspace: {problem}. The next trial or the same command brings it up to date."
                )
            self._reported = problem

    def _update(self) -> None:
        with study_read(self.folder / STUDY) as (storage, study):
            directions = storage.get_study_directions(study)
            attributes = storage.get_study_user_attrs(study)
            trials = storage.get_all_trials(study, deepcopy=False)
        database = RDBStorage(self.url, engine_kwargs=_OPTIONS)
        try:
            there = database.get_study_id_from_name(self.folder.name)
        except KeyError:
            there = database.create_new_study(directions, self.folder.name)
        known = database.get_all_trials(there, deepcopy=False)
        ours = (read_note(self.folder / SWEEP_NOTE, "") or {}).get("identity")
        theirs = database.get_study_user_attrs(there).get(_IDENTITY, ours)
        require(
            ours == theirs and all(a.params == b.params for a, b in zip(known, trials, strict=False)),
            "a study of this name must be of this sweep",
            remedy="Another sweep has the name in this database: give another --name.",
        )
        copy_attributes({**attributes, _IDENTITY: ours}, database, there)
        # Their numbers are counted by the database, so that one that runs keeps the later ones back.
        for trial in list(takewhile(lambda trial: trial.state.is_finished(), trials))[len(known) :]:
            database.create_new_trial(there, trial)


def _in_a_line(error: BaseException) -> str:
    """The first line of the first cause: what SQLAlchemy adds quotes the statement."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
