"""SQLite files that cannot be made again: rotating copies, and the newest good one instead of a damaged file.

A copy lies in the folder ``copies`` beside the database, and its name ends with the checksum of its bytes, so
that it needs no second file: ``copies/study-000017-0123456789abcdef.db``.
"""

import functools
import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from stillhouse.core.artifacts import remove_leftovers, write_atomically
from stillhouse.core.console import warn
from stillhouse.core.errors import BadInput, Hindered, full_disk
from stillhouse.core.integrity import moved, put_aside

COPIES = "copies"
"""Folder of the copies, beside the database."""
COPY = "copy"
"""Name under which the newest good copy is attached when a database is compared with it."""
KEPT = 2
"""Number of copies that are kept."""

Differs = Callable[[sqlite3.Connection], bool]
"""Whether a database contradicts its newest copy, which is attached as ``copy``."""

_DAMAGE = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
)
_SHORT_READ = sqlite3.SQLITE_IOERR_SHORT_READ
_DIGITS = 16


def keep_copy(path: Path, differs: Differs | None = None) -> str:
    """Keep a copy of a database, and drop the oldest; nothing is written if the newest copy equals it.

    Args:
        path: The database, which may be in use.
        differs: Whether the database contradicts its newest copy; None checks the structure alone.

    Returns:
        What is wrong with the database; then no copy is taken. Empty if nothing is.

    Raises:
        Hindered: The disk is full, or the database cannot be read.
    """
    newest = newest_copy(path)
    try:
        with closing(_opened(path)) as live:
            data = live.serialize()
        with closing(sqlite3.connect("file::memory:", uri=True)) as memory:
            memory.deserialize(data)
            problem = _problem(memory, newest, differs)
    except sqlite3.Error as error:
        return _explained(path, error)
    digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
    if problem or (newest is not None and newest.stem.endswith(digest)):
        return problem
    folder = path.parent / COPIES
    number = 1 + max((_number(copy) for copy in copies_of(path)), default=0)
    write_atomically(folder / f"{path.stem}-{number:06d}-{digest}{path.suffix}", data)
    remove_leftovers(folder)
    for old in copies_of(path)[:-KEPT]:
        old.unlink(missing_ok=True)
    return ""


def newest_copy(path: Path) -> Path | None:
    """Return the newest copy of a database whose bytes are those that were written; None if there is none."""
    for copy in reversed(copies_of(path)):
        if is_good_copy(copy):
            return copy
    return None


def is_good_copy(copy: Path) -> bool:
    """Whether a copy has the bytes that its name states."""
    return hashlib.sha256(copy.read_bytes()).hexdigest()[:_DIGITS] == copy.stem[-_DIGITS:]


def copies_of(path: Path) -> list[Path]:
    """List the copies of a database, oldest first, good or not."""
    pattern = f"{path.stem}-{'[0-9]' * 6}-{'?' * _DIGITS}{path.suffix}"
    return sorted((path.parent / COPIES).glob(pattern))


def damage_of_database(path: Path, differs: Differs | None = None) -> str:
    """Say what is wrong with a database, which is only read; empty if nothing is.

    Args:
        path: An existing file.
        differs: Whether the database contradicts its newest copy; None checks the structure alone.

    Raises:
        Hindered: The system does not let it be read; it may be good.
    """
    try:
        with closing(_opened(path)) as connection:
            return _problem(connection, newest_copy(path), differs)
    except sqlite3.Error as error:
        return _explained(path, error)


def take_copy(path: Path, problem: str, remedy: str) -> Path:
    """Put a damaged or missing database aside, and its newest good copy in its place.

    Args:
        path: The database.
        problem: What is wrong with it, to follow its name: "is damaged (…)", "is missing".
        remedy: What to do where there is no copy.

    Returns:
        The copy.

    Raises:
        Hindered: There is no good copy; nothing was moved.
    """
    copy = newest_copy(path)
    if copy is None:
        raise Hindered(
            f"{path} must be as it was written, but it {problem}, and it has no good copy. {remedy}"
        )
    # The database first: without its rollback journal, it would look whole although it is not.
    aside = put_aside_database(path)
    write_atomically(path, copy.read_bytes())
    where = f" {moved(aside)}" if aside else ""
    warn(f"{path} {problem}.{where} Its newest copy is used, {copy.name}.")
    return copy


def put_aside_database(path: Path) -> Path | None:
    """Move a database to the quarantine, with what SQLite writes beside it; returns its new path."""
    aside = put_aside(path)
    if path.exists():
        raise BadInput(f"{path} is damaged and must be moved, but its folder cannot be written.")
    for ending in ("-journal", "-wal", "-shm"):
        # A rollback journal of the damaged file would be played back into the copy.
        put_aside(path.with_name(path.name + ending))
    return aside


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database to read. One that a killed process left in a transaction is rolled back by SQLite."""
    mode = "rw" if path.with_name(f"{path.name}-journal").exists() else "ro"
    return sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=60)


def _problem(connection: sqlite3.Connection, newest: Path | None, differs: Differs | None) -> str:
    # The answer may quote damaged text.
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
    check = "quick_check" if differs is None else "integrity_check"
    try:
        (found,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
    except UnicodeDecodeError:  # An error whose words quote damaged text.
        return "is damaged (its schema is not text)"
    if found != "ok":
        return f"is damaged ({' '.join(str(found).split())})"
    if newest is None or differs is None:
        return ""
    connection.execute(f"ATTACH ? AS {COPY}", (f"file:{quote(str(newest))}?mode=ro&immutable=1",))
    try:
        return f"is damaged: it contradicts its copy {newest.name}" if differs(connection) else ""
    finally:
        connection.rollback()
        connection.execute(f"DETACH {COPY}")


def _explained(path: Path, error: sqlite3.Error) -> str:
    """Say what damage an error means; raised if it means none."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code & 0xFF in _DAMAGE or code == _SHORT_READ:
        return f"is damaged ({error})"
    if code & 0xFF == sqlite3.SQLITE_FULL:
        raise full_disk(path) from error
    raise Hindered(
        f"{path} must be a database that can be read, but SQLite answered: {error}. It may be good: check "
        "the disk, the mount and the permissions, and run the same command again."
    ) from error


def _number(copy: Path) -> int:
    return int(copy.stem.split("-")[-2])
