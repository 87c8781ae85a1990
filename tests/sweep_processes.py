"""A sweep in a process of its own: its environment, its live processes, and what its databases say."""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import psutil

_LATE = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""After a SIGKILL, these retry for a minute to report the raylet's end to a control store that is gone."""


def environment_of(folder: Path) -> dict[str, str]:
    """The environment of a job that keeps everything in a folder, Ray's files below ``r``; one thread."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "RAY_TMPDIR": str(folder / "r"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }


def processes_of(folder: Path, name: str = "") -> list[psutil.Process]:
    """All live processes of a job with a folder, except Ray's agents; or those whose program has ``name``."""
    live = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            ours = [*words, process.environ().get("RAY_TMPDIR", "")]
            if (
                any(str(folder) in word for word in ours)
                and process.status() != "zombie"
                and process.name() not in _LATE
                and name in " ".join(words[:1])
            ):
                live.append(process)
    return live


def query(database: Path, question: str) -> list[tuple[Any, ...]]:
    """Query an SQLite file; return nothing while the file or table does not exist."""
    if not database.exists():
        return []
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        try:
            return connection.execute(question).fetchall()
        except sqlite3.OperationalError:
            return []
