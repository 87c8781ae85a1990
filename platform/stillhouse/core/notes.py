"""Small JSON files that commands keep beside artifacts, and can make again.

A damaged one is put aside; it never stops a command.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace, write_atomically, write_json
from stillhouse.core.console import warn
from stillhouse.core.errors import blocked
from stillhouse.core.integrity import moved, put_aside
from stillhouse.core.json_text import parse_json

FIGURES = "figures"
"""Folder of the dev figures of students."""
NOTES = ("sources", "experiments", FIGURES)
"""Folders of notes, by whose names others can tell what they are about: what a source was read into."""

_synced: dict[Path, bytes] = {}
"""Digests of the notes that this process has fetched or published."""


def fetch_notes(workspace: Workspace) -> None:
    """Fetch the notes that this node does not have, or that the workspace's remote has had anew since.

    Raises:
        Hindered: The remote does not answer.
    """
    if workspace.remote is None:
        return
    for kind in NOTES:
        for name, written in workspace.remote.written(kind).items():
            path = workspace.root / kind / name
            known = path.stat().st_mtime if path.exists() else -1.0
            if written > known and (data := workspace.remote.read(f"{kind}/{name}")) is not None:
                write_atomically(path, data)
                os.utime(path, (written, written))  # By the remote's clock, whatever this node's says.
                _synced[path] = hashlib.sha256(data).digest()


def publish_notes(workspace: Workspace) -> None:
    """Publish the notes that the remote does not have, or that have been written anew.

    Raises:
        Hindered: The remote does not take them.
    """
    if workspace.remote is None:
        return
    for kind in NOTES:
        there = set(workspace.remote.names(kind))
        for path in sorted((workspace.root / kind).glob("[!.]*.json")):
            data = path.read_bytes()
            digest, known = hashlib.sha256(data).digest(), _synced.get(path)
            if path.name not in there or known not in (None, digest):
                workspace.remote.write(f"{kind}/{path.name}", data)
            _synced[path] = digest


def write_note(path: Path, content: dict[str, Any]) -> None:
    """Write a note atomically, secrets replaced."""
    write_json(path, content)


def read_note(path: Path, consequence: str) -> dict[str, Any] | None:
    """Read a note; a damaged one is put aside, with a warning of the consequence, and counts as missing.

    Raises:
        Hindered: The system does not let the file be read.
    """
    content = sound_note(path)
    if content is None and path.exists():
        warn(f"{path} is damaged. {moved(put_aside(path, alone=True))} {consequence}")
    return content


def has_note(path: Path) -> bool:
    """Return whether a note exists and can be read; a damaged one is put aside, to be made again."""
    return read_note(path, "What it remembers is made again.") is not None


def sound_note(path: Path) -> dict[str, Any] | None:
    """Read a note; None if it is missing or damaged.

    Raises:
        Hindered: The system does not let the file be read.
    """
    try:
        content = parse_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise blocked(path, error) from None
    return content if isinstance(content, dict) else None


STAGES, SWEEPS = "stages", "sweeps"
"""Rooms of a workspace: the folders of all stages, and of all sweeps."""
STAGE_NOTE, SWEEP_NOTE = "plan.json", "sweep.json"
"""Markers: the plan that a stage's folder has from its start, and what a sweep was begun with."""
EXPORT_NOTE = "export.json"
"""Name of the note that tells which student a sweep delivered."""


def room_of(folder: Path) -> str:
    """Say whether a folder is that of a stage or of a sweep, by its room and its marker; empty if neither.

    A stage that was copied out of its workspace is in no room, and stays one.
    """
    room = Path(os.path.abspath(folder)).parent.name
    if (folder / SWEEP_NOTE).exists() and room != STAGES:
        return SWEEPS
    return STAGES if (folder / STAGE_NOTE).exists() and room != SWEEPS else ""
