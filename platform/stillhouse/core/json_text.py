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
