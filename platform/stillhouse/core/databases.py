"""SQLite files: whether one can be read, a backup of one, and a damaged one moved aside."""

import functools
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from stillhouse.core.artifacts import replacing
from stillhouse.core.errors import BadInput, Hindered, full_disk
from stillhouse.core.integrity import put_aside

_DAMAGE = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
)


def damage_of_database(path: Path) -> str:
    """Say what SQLite finds wrong with an existing database; empty if nothing is.

    Raises:
        Hindered: The system does not let it be read; it may be good.
    """
    try:
        with closing(_opened(path)) as connection:
            return _problem(connection)
    except sqlite3.Error as error:
        return _explained(path, error)


def back_up(path: Path, backup: Path) -> str:
    """Let SQLite copy a database, which may be in use; a damaged one is not copied.

    Returns:
        What is wrong with the database; empty if nothing is.

    Raises:
        Hindered: The disk is full, or the database cannot be read.
    """
    try:
        with closing(_opened(path)) as live:
            if problem := _problem(live):
                return problem
            with replacing(backup) as temporary, closing(sqlite3.connect(temporary)) as copy:
                live.backup(copy)
    except sqlite3.Error as error:
        return _explained(path, error)
    return ""


def put_aside_database(path: Path) -> Path | None:
    """Move a database to the quarantine, with what SQLite writes beside it; returns its new path."""
    aside = put_aside(path)
    if path.exists():
        raise BadInput(f"{path} is damaged and must be moved, but its folder cannot be written.")
    for ending in ("-journal", "-wal", "-shm"):
        # A rollback journal of the damaged file would be played back into the one that takes its place.
        put_aside(path.with_name(path.name + ending))
    return aside


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database to read. One that a killed process left in a transaction is rolled back by SQLite."""
    mode = "rw" if path.with_name(f"{path.name}-journal").exists() else "ro"
    return sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=60)


def _problem(connection: sqlite3.Connection) -> str:
    # The answer may quote damaged text.
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except UnicodeDecodeError:  # An error whose words quote damaged text.
        return "is damaged (its schema is not text)"
    return "" if found == "ok" else f"is damaged ({' '.join(str(found).split())})"


def _explained(path: Path, error: sqlite3.Error) -> str:
    """Say what damage an error means; raised if it means none."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code & 0xFF in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return f"is damaged ({error})"
    if code & 0xFF == sqlite3.SQLITE_FULL:
        raise full_disk(path) from error
    raise Hindered(
        f"{path} must be a database that can be read, but SQLite answered: {error}. It may be good: check "
        "the disk, the mount and the permissions, and run the same command again."
    ) from error
