"""Logs of JSON lines, each with a checksum of its own bytes.

A log grows for as long as something runs, so no manifest can state its checksum: what is damaged in the
middle of it is told, and left out, line by line. One that cannot be made again is written twice.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_atomically
from stillhouse.core.errors import blocked
from stillhouse.core.integrity import put_aside
from stillhouse.core.json_text import is_one_letter_off, parse_json

CHECK = "check"
"""Key of a line's checksum, the last one: 16 hexadecimal digits of the SHA-256 of the bytes before it."""
_CHECKED = re.compile(rb'(.*),"check":"([0-9a-f]{16})"\}\n?', re.DOTALL)


def checked_line(entry: Mapping[str, Any]) -> bytes:
    """Return a line of a log, with its checksum and its end; what JSON does not have becomes text."""
    content = json.dumps({**entry}, separators=(",", ":"), default=str)[:-1].encode()
    return content + f',"{CHECK}":"{_digest(content)}"}}\n'.encode()


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Parse a line of a log, with its end or without.

    Returns:
        The entry without the checksum; None if it is damaged. Lines of older versions have no checksum.
    """
    found = _CHECKED.fullmatch(line)
    if found is not None and _digest(found[1]) != found[2].decode():
        return None
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    if not isinstance(entry, dict):
        return None
    if found is None and any(name == CHECK or is_one_letter_off(name, CHECK) for name in entry):
        return None
    return {name: value for name, value in entry.items() if name != CHECK}


def read_twice(path: Path, copy: Path) -> tuple[bytes, int]:
    """Read a log whose lines are written to two files, the copy second; what one lacks the other gives.

    The copy is taken whole if all of its lines are good and it has every good line of the first file. If both
    are damaged, good lines of the copy replace what is not good at their places. A copy that does not fit is
    that of another log, and says nothing.

    Returns:
        The log, and how many of its lines the first file does not have.
    """
    ours, theirs = _read(path), _read(copy)
    known, spare = dict(_good_lines(ours)), dict(_good_lines(theirs))
    if _is_good(theirs, spare) and set(known.values()) <= set(spare.values()):
        return b"".join(spare.values()), len(set(spare.values()) - set(known.values()))
    if _is_good(ours, known):
        return b"".join(known.values()), 0
    taken = {at: line for at, line in spare.items() if at not in known}
    good = [(at, at + len(line)) for at, line in known.items()]
    crossing = any(at < end and at + len(line) > first for at, line in taken.items() for first, end in good)
    if crossing or any(spare.get(at, line) != line for at, line in known.items()):
        return ours, 0
    whole = bytearray(ours)
    for at, line in sorted(taken.items()):
        if at <= len(whole):  # Else nobody knows what comes before it.
            whole[at : at + len(line)] = line
    return bytes(whole), len(taken)


def heal_twice(path: Path, copy: Path) -> int:
    """Write what `read_twice` reads to both files where they differ; what was damaged is put aside.

    Returns:
        How many lines were taken from the copy.
    """
    whole, taken = read_twice(path, copy)
    for file in (path, copy):
        content = _read(file)
        if not whole.startswith(content[: content.rfind(b"\n") + 1]):
            put_aside(file, alone=True)
        if content != whole:
            write_atomically(file, whole)
    return taken


def _is_good(content: bytes, lines: Mapping[int, bytes]) -> bool:
    """Whether a log consists of its good lines, apart from a last one that is not complete."""
    return sum(map(len, lines.values())) == content.rfind(b"\n") + 1


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise blocked(path, error) from None


def _good_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are as they were written, with their places."""
    at = 0
    for line in content.splitlines(keepends=True):
        if line.endswith(b"\n") and parse_line(line) is not None:
            yield at, line
        at += len(line)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
