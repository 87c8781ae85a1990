"""JSON from files and from others, which may hold anything."""

import json
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


def is_one_letter_off(name: str, key: str) -> bool:
    """Whether a name is that of a key after the flip of a bit."""
    return len(name) == len(key) and sum(a != b for a, b in zip(name, key, strict=True)) == 1
