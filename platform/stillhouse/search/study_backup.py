"""A sweep's study in a file: backed up after every trial, and taken from the backup if damaged or lost."""

import sqlite3
from contextlib import closing
from pathlib import Path

from stillhouse.core.artifacts import write_atomically
from stillhouse.core.console import warn
from stillhouse.core.databases import back_up, damage_of_database, put_aside_database
from stillhouse.core.errors import Hindered
from stillhouse.core.integrity import moved

STUDY, BASELINE_STUDY = "study.db", "baseline.db"
STUDIES = {STUDY: "study.backup.db", BASELINE_STUDY: "baseline.backup.db"}
"""Names of the studies' files in a sweep's folder, the method's and its baseline's, and of their backups."""
_ENDED = "('COMPLETE', 'PRUNED', 'FAIL')"


def restore_studies(folder: Path) -> None:
    """Check the studies in a sweep's folder, and replace a damaged or lost one by its backup.

    The trials that the backup does not know as finished run again under their numbers: their stages are
    finished, or resume. The folder is locked; it need not exist.

    Raises:
        Hindered: A study is damaged and has no good backup, or the system does not let it be read.
    """
    for study, backup in STUDIES.items():
        _restore(folder / study, folder / backup)


def _restore(path: Path, backup: Path) -> None:
    problem = damage_of_database(path) if path.exists() else "is missing" * backup.exists()
    if not problem:
        return
    if not backup.exists() or damage_of_database(backup):
        raise Hindered(
            f"{path} must be a database that can be read, but it {problem}, and it has no good backup. Put a "
            "copy of your own in its place, or give another --name: the new sweep finds the stages of all "
            "points that it shares with this one."
        )
    aside = put_aside_database(path)
    write_atomically(path, backup.read_bytes())
    where = f" {moved(aside)}" if aside else ""
    warn(f"{path} {problem}.{where} Its backup is used: trials that it does not know as finished run again.")


def back_up_study(path: Path) -> None:
    """Back up a study as it is now; a damaged one is reported, and its last good backup stays."""
    if problem := back_up(path, path.with_name(STUDIES[path.name])):
        warn(f"{path} {problem}. The next start of this sweep takes its backup.")


def put_aside_study(path: Path) -> None:
    """Move a study and its backup to the quarantine, since another one takes its place."""
    put_aside_database(path)
    put_aside_database(path.with_name(STUDIES[path.name]))


def ended_trials(path: Path) -> int:
    """Count the trials of a study that have ended; the study need not exist."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as study:
        return _ended(study)


def ended_trials_of(study: bytes) -> int:
    """Count the trials that have ended in the bytes of a study; 0 for one that cannot be read."""
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.deserialize(study)
            return _ended(database)
        except sqlite3.Error:
            return 0


def _ended(study: sqlite3.Connection) -> int:
    if not study.execute("SELECT 1 FROM sqlite_master WHERE name = 'trials'").fetchone():
        return 0
    return int(study.execute(f"SELECT count(*) FROM trials WHERE state IN {_ENDED}").fetchone()[0])
