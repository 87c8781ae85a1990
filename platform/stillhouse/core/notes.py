"""Small JSON files that commands keep beside artifacts, each with the checksum of its content.

A note can be made again, or it is kept twice. A damaged one is put aside; it never stops a command.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Workspace, write_atomically, write_json
from stillhouse.core.console import warn
from stillhouse.core.errors import blocked
from stillhouse.core.integrity import ARTIFACT, NOTE, OWN, is_of, is_unchanged, moved, put_aside, with_own_sum
from stillhouse.core.json_text import parse_json
from stillhouse.core.redaction import redacted_json

FIGURES = "figures"
"""Folder of the dev figures of students."""
NOTES = ("sources", "experiments", FIGURES)
"""Folders of notes, by whose names others can tell what they are about: what a source was read into."""

_synced: dict[Path, bytes] = {}
"""Digests of the notes that this process has fetched or published."""


def fetch_notes(workspace: Workspace) -> None:
    """Fetch the notes that the workspace's remote has and this node has not.

    Raises:
        Hindered: The remote does not answer.
    """
    if workspace.remote is None:
        return
    for kind in NOTES:
        for name in workspace.remote.names(kind):
            path = workspace.root / kind / name
            if not path.exists() and (data := workspace.remote.read(f"{kind}/{name}")) is not None:
                write_atomically(path, data)
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
    """Write a note atomically, secrets replaced, with its name and the checksum of what is written."""
    write_json(path, with_own_sum({**redacted_json(content), NOTE: path.name}))


def write_part(path: Path, content: dict[str, Any]) -> None:
    """Write a note that belongs to the artifact in whose folder it is, and states its name too.

    For what describes an artifact and may be made again after its manifest was written.
    """
    write_note(path, {**content, ARTIFACT: path.parent.name})


def read_note(path: Path, consequence: str) -> dict[str, Any] | None:
    """Read a note; a damaged one is put aside, and counts as missing.

    Args:
        path: The file.
        consequence: One sentence that says what happens without it.

    Raises:
        Hindered: The system does not let the file be read.
    """
    content = sound_note(path)
    if content is None and path.exists():
        warn(f"{path} is damaged. {moved(put_aside(path, alone=True))} {consequence}")
    return content


def has_note(path: Path) -> bool:
    """Whether a note exists and can be read by `read_json`; a damaged one is put aside, to be made again."""
    sound = is_sound(path)
    if not sound and path.exists():
        warn(f"{path} is damaged. {moved(put_aside(path, alone=True))} What it remembers is made again.")
    return sound


def sound_note(path: Path) -> dict[str, Any] | None:
    """Read a note; None if it is missing or damaged. Notes of older versions have no checksum."""
    content = json.loads(path.read_bytes()) if is_sound(path) else None
    if not isinstance(content, dict):
        return None
    return {name: value for name, value in content.items() if name not in (OWN, NOTE, ARTIFACT)}


def is_sound(path: Path) -> bool:
    """Whether a file of JSON exists and is as it was written, as far as it has a checksum.

    Raises:
        Hindered: The system does not let the file be read.
    """
    try:
        content = parse_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    except OSError as error:
        raise blocked(path, error) from None
    if not isinstance(content, dict):
        return True
    ours = content.get(NOTE, path.name) == path.name and is_of(content, path.parent)
    return ours and is_unchanged(content)


def copy_of(path: Path) -> Path:
    """Return the file of a note's copy: ``identity.copy.json`` beside ``identity.json``."""
    return path.with_name(f"{path.stem}.copy{path.suffix}")


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


def write_note_twice(path: Path, content: dict[str, Any]) -> None:
    """Write a note and its copy."""
    for file in (path, copy_of(path)):
        write_note(file, content)


def read_note_twice(path: Path) -> dict[str, Any] | None:
    """Read a note that is kept twice, and write again what is damaged or missing of it."""
    found = [read_note(file, "Its copy is used.") for file in (path, copy_of(path))]
    known = next((content for content in found if content is not None), None)
    if known is not None and None in found:
        write_note_twice(path, known)
    return known
