"""JSON from files and from others, which may hold anything, and logs of JSON lines."""

import json
from collections.abc import Mapping
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: It is no JSON, is in no encoding of it, or is nested more deeply than Python can follow.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def json_line(entry: Mapping[str, Any]) -> bytes:
    """Return a line of a log, with its end; what JSON does not have becomes text."""
    return json.dumps({**entry}, separators=(",", ":"), default=str).encode() + b"\n"


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Parse a line of a log; None if it is no JSON object, as one that a kill has cut."""
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
