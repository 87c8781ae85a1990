"""A sweep's study: checked when a sweep begins, copied after every trial, taken from a copy if damaged.

SQLite's own check sees damaged pages, not a changed digit in a value. What is final in a study, the search
itself, the points of all trials and the results of finished ones, is therefore compared with the newest copy.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from stillhouse.core.console import warn
from stillhouse.core.databases import (
    copies_of,
    damage_of_database,
    keep_copy,
    newest_copy,
    put_aside_database,
    take_copy,
)
from stillhouse.core.integrity import put_aside
from stillhouse.tracking.journal import trial_states

STUDY = "study.db"
"""Name of a study's file in the sweep's folder."""

_REMEDY = (
    "Put a copy of your own in its place, or give another --name: the new sweep finds the stages of all "
    "points that it shares with this one."
)
_ENDED = ("COMPLETE", "PRUNED", "FAIL")
FINISHED = str(_ENDED)
"""States of trials that have ended, as SQL."""
_STATES = str((*_ENDED, "RUNNING", "WAITING"))
_IN_FINISHED = f"trial_id IN (SELECT trial_id FROM copy.trials WHERE state IN {FINISHED})"
_FINAL = (
    ("studies", "*", "1"),
    ("study_directions", "*", "1"),
    ("study_user_attributes", "*", "key = 'search'"),
    ("trials", "trial_id, number, study_id, datetime_start", "1"),
    ("trials", "*", _IN_FINISHED),
    ("trial_params", "*", "1"),
    ("trial_values", "*", _IN_FINISHED),
    ("trial_user_attributes", "*", _IN_FINISHED),
    ("trial_intermediate_values", "*", _IN_FINISHED),
)
"""Table, columns and condition of the rows of a copy that must stand in the study as they are."""


def heal_study(folder: Path) -> None:
    """Check the study of a sweep, and replace a damaged or lost one by its newest good copy.

    The trials that the copy does not know as finished run again under their numbers: their stages are
    finished, or resume.

    Args:
        folder: The sweep's folder, which is locked; it need not exist.

    Raises:
        Hindered: The study is damaged or lost and has no good copy, or the system does not let it be read.
    """
    path = folder / STUDY
    if path.exists():
        problem = damage_of_study(path) or _emptied(folder, path)
    else:
        lost = newest_copy(path) is not None or trial_states(folder)
        problem = "is missing, although this sweep had trials" if lost else ""
    if problem:
        take_copy(path, problem, _REMEDY)
        warn(_what_was_lost(folder, path))


def ended_trials(path: Path) -> int:
    """How many trials of a study have ended; the study need not exist."""
    return sum(state in _ENDED for state in _states(path).values()) if path.exists() else 0


def keep_study(path: Path) -> None:
    """Keep a copy of a study as it is now; a damaged one is reported, and its last good copy stays."""
    problem = keep_copy(path, contradicts_copy)
    if problem:
        warn(f"{path} {problem}. The next start of this sweep takes its newest good copy.")


def put_aside_study(path: Path) -> None:
    """Move a study to the quarantine, and its copies, which contradict the one that takes its place."""
    put_aside_database(path)
    for copy in copies_of(path):
        put_aside(copy)


def damage_of_study(path: Path) -> str:
    """Say what is wrong with a study, which is only read; empty if nothing is."""
    return damage_of_database(path, contradicts_copy)


def contradicts_copy(connection: sqlite3.Connection) -> bool:
    """Whether something that is final in the attached copy stands otherwise in the study."""
    schema = "SELECT sql FROM {}.sqlite_master WHERE sql IS NOT NULL ORDER BY sql"
    if _rows(connection, schema.format("main")) != _rows(connection, schema.format("copy")):
        return True
    for table, columns, condition in _FINAL:
        known = f"SELECT {columns} FROM copy.{table} WHERE {condition}"
        if _rows(connection, f"{known} EXCEPT SELECT {columns} FROM main.{table}"):
            return True
    return bool(_rows(connection, f"SELECT trial_id FROM main.trials WHERE state NOT IN {_STATES}"))


def _rows(connection: sqlite3.Connection, query: str) -> list[Sequence[object]]:
    """Return what a query finds; text as bytes, since damaged text need not be UTF-8."""
    connection.text_factory = bytes
    return connection.execute(query).fetchall()


def _emptied(folder: Path, path: Path) -> str:
    """Whether a study without any trial, and without a copy, had some: SQLite takes an empty file as good."""
    return "is empty, although this sweep had trials" if not _states(path) and trial_states(folder) else ""


def _what_was_lost(folder: Path, path: Path) -> str:
    known, noted = _states(path), trial_states(folder)
    ended = {number for number, state in noted.items() if state not in ("running", "interrupted")}
    again = sorted(
        number for number in noted if number not in known or (number in ended and known[number] == "RUNNING")
    )
    if not again:
        return "No trial is lost."
    they = "it has" if len(again) == 1 else "they have"
    return f"{_listed(again)} again, from the stages that {they} trained."


def _states(path: Path) -> dict[int, str]:
    """Return the states of a study's trials by number; empty where there is no such table."""
    with closing(sqlite3.connect(path)) as study:
        if not _rows(study, "SELECT 1 FROM sqlite_master WHERE name = 'trials'"):
            return {}
        study.text_factory = str
        return dict(study.execute("SELECT number, state FROM trials"))


def _listed(numbers: Iterable[int]) -> str:
    *first, last = map(str, numbers)
    return f"Trials {', '.join(first)} and {last} run" if first else f"Trial {last} runs"
