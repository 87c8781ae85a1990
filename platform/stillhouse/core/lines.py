"""Logs of JSON lines, each with a checksum of its own bytes.

A log grows for as long as something runs, so no manifest can state its checksum: what is damaged in the
middle of it is told, and left out, line by line.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

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


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
