"""A sweep's study in a database, where a team sees the studies of all its sweeps.

The file stays what the search goes on from: a database that is away delays no trial, and has everything again
some seconds after it is back. Another workspace begins with the database's study where that knows more.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.exceptions import OptunaError
from optuna.storages import RDBStorage
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from stillhouse.core.console import say, warn
from stillhouse.core.errors import BadInput, Hindered, require
from stillhouse.core.notes import SWEEP_NOTE, read_note, write_note
from stillhouse.core.redaction import redacted
from stillhouse.core.repeating import repeated
from stillhouse.search.options import STUDY_DATABASE
from stillhouse.search.studies import copy_attributes, copy_trials, make_study, study_read
from stillhouse.search.study_backup import STUDY, ended_trials, put_aside_study
from stillhouse.tracking.location import require_driver

EVERY_S = 1.0
"""Seconds between two looks at the file."""

_PATIENCE_S = 30.0
"""How long the end of a sweep waits for a database that does not answer."""
_CONNECTING = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""Seconds to wait for a connection; one whose server has vanished silently ends in half a minute."""
_MAKING_TABLES = 0x5745_4C4C
"""Number of the lock in the database that one command holds while it makes Optuna's tables."""
_COUNTER = slice(24, 28)
"""Where an SQLite file has the number of its transactions."""
_NOTE = "sweep"
"""Attribute of the study in the database: what the sweep was begun with."""
_ERRORS = (SQLAlchemyError, OptunaError, OSError)


class StudyMirror:
    """Keeps a copy of a sweep's study in a database.

    Args:
        url: Address of a Postgres, as SQLAlchemy reads it.
        folder: The sweep's folder, whose name is the study's name in the database.

    Raises:
        BadInput: It is no address of a Postgres, or its driver is not installed.
    """

    def __init__(self, url: str, folder: Path) -> None:
        require(
            url.partition("://")[0].partition("+")[0] == "postgresql" and "://" in url,
            f"{STUDY_DATABASE} must be the URL of a Postgres",
            given=redacted(url),
            remedy="Such as postgresql+psycopg://user@host/database; unset, the study is in a file alone.",
        )
        require_driver(url, STUDY_DATABASE)
        self.url, self.folder, self.name = url, folder, folder.name
        self.file = folder / STUDY
        self._database: RDBStorage | None = None
        self._copied = b""
        self._told = ""

    def restore(self) -> None:
        """Begin with the database's study if it knows more finished trials than the file, or there is none.

        Raises:
            Hindered: The database does not answer. A search that begins without it might be another one.
        """
        try:
            theirs = self._theirs()
        except _ERRORS as error:
            raise Hindered(
                f"the database of the studies must answer at the start of a sweep, but {redacted(self.url)} "
                f"did not: {_in_a_line(error)}. Start it, or unset {STUDY_DATABASE}: the study is then in a "
                "file alone."
            ) from None
        if theirs is None:
            return
        directions, attributes, trials = theirs
        finished = sum(trial.state.is_finished() for trial in trials)
        if self.file.exists() and finished <= ended_trials(self.file):
            return
        put_aside_study(self.file)
        self.folder.mkdir(parents=True, exist_ok=True)
        begun = attributes.pop(_NOTE, None)
        if begun is not None and read_note(self.folder / SWEEP_NOTE, "") is None:
            write_note(self.folder / SWEEP_NOTE, begun)
        make_study(self.file, directions, attributes, trials)
        say(f"sweep {self.name}: going on from its study in the database (finished trials: {finished})")

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Let the database follow the file while the block runs; what goes wrong there delays nothing."""
        with repeated(
            self._look, every_s=EVERY_S, name="study in a database", patience_s=_PATIENCE_S, at_end=True
        ):
            yield
        if self._copied != self._transactions() and not self._told:
            warn(f"{self._behind} it does not answer. The same command brings it up to date.")

    def follow(self) -> None:
        """Bring the study in the database to where the file is.

        Raises:
            BadInput: The database has another study of this name.
        """
        with study_read(self.file) as (storage, study):
            directions = storage.get_study_directions(study)
            attributes = storage.get_study_user_attrs(study)
            trials = storage.get_all_trials(study, deepcopy=False)
        database = self._opened()
        try:
            there = database.get_study_id_from_name(self.name)
        except KeyError:
            there = database.create_new_study(directions, self.name)
        begun = read_note(self.folder / SWEEP_NOTE, "")
        known = database.get_study_user_attrs(there).get(_NOTE)
        require(
            known is None or begun is None or known["identity"] == begun["identity"],
            "a study of this name must be of this sweep",
            remedy="Another sweep has the name in this database: give another --name.",
        )
        copy_attributes({**attributes, **({} if begun is None else {_NOTE: begun})}, database, there)
        copy_trials(trials, database, there)

    def _look(self) -> None:
        now = self._transactions()
        if now == self._copied:
            return
        try:
            self.follow()
        except BadInput as error:
            self._tell(f"{self._behind} {error}")
        except _ERRORS as error:
            self._tell(f"{self._behind} {_in_a_line(error)}. It is tried again every second.")
        else:
            self._copied = now
            if self._told:
                say(f"sweep {self.name}: its study in the database is complete again")
            self._told = ""

    @property
    def _behind(self) -> str:
        return f"sweep {self.name}: its study in {self.url} is behind the one in the workspace:"

    def _tell(self, problem: str) -> None:
        """Warn of a problem, once for as long as it lasts."""
        if not self._told:
            warn(problem)
        self._told = problem

    def _transactions(self) -> bytes:
        """The number of transactions that the file has seen; empty without a file."""
        try:
            with self.file.open("rb") as file:
                return file.read(100)[_COUNTER]
        except FileNotFoundError:
            return b""

    def _theirs(self) -> tuple[Any, dict[str, Any], list[Any]] | None:
        """Directions, user attributes and trials of the study in the database; None if there is none."""
        database = self._opened()
        try:
            study = database.get_study_id_from_name(self.name)
        except KeyError:
            return None
        return (
            database.get_study_directions(study),
            database.get_study_user_attrs(study),
            database.get_all_trials(study, deepcopy=False),
        )

    def _opened(self) -> RDBStorage:
        if self._database is None:
            self._database = _database(self.url)
        return self._database


def _database(url: str) -> RDBStorage:
    """Open a database as Optuna's storage; of several commands that find it empty, one makes the tables."""
    options = {"pool_pre_ping": True, "connect_args": _CONNECTING}
    engine = create_engine(url, **options)
    try:
        with engine.connect() as alone:
            alone.execute(text(f"SELECT pg_advisory_lock({_MAKING_TABLES})"))  # until it is closed
            return RDBStorage(url, engine_kwargs=options)
    finally:
        engine.dispose()


def _in_a_line(error: BaseException) -> str:
    """The first line of the first cause: what SQLAlchemy adds quotes the statement."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return redacted(lines[0].rstrip(".")) if lines else type(error).__name__
