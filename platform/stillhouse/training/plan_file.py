"""The plan in a stage's folder: a file from the start, and a part of the manifest of a finished stage."""

import json
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest, write_json
from stillhouse.core.console import warn
from stillhouse.core.errors import blocked
from stillhouse.core.integrity import put_aside
from stillhouse.core.json_text import parse_json
from stillhouse.core.notes import STAGE_NOTE


def damage_of_plan(folder: Path) -> str:
    """Say what is wrong with the plan of a finished stage; empty if nothing is.

    It has no checksum: it must be the plan of the manifest, which has one.

    Raises:
        BadInput: The manifest is missing or damaged, or the system does not let the file be read.
    """
    path, expected = folder / STAGE_NOTE, read_manifest(folder).get("plan")
    if expected is None:  # a manifest of an older version
        return ""
    try:
        found = parse_json(path.read_bytes())
    except FileNotFoundError:
        return "is missing"
    except ValueError as error:
        return f"was altered: {error}"
    except OSError as error:
        raise blocked(path, error) from None
    return "" if _text(found) == _text(expected) else "was altered: it differs from the plan of the manifest"


def mend_plan(folder: Path) -> None:
    """Write the plan of a finished stage again if it is damaged or missing.

    Raises:
        BadInput: As for `damage_of_plan`.
    """
    problem = damage_of_plan(folder)
    if problem:
        put_aside(folder / STAGE_NOTE, alone=True)
        write_json(folder / STAGE_NOTE, read_manifest(folder)["plan"])
        warn(f"{folder / STAGE_NOTE} {problem}. It was written again from the manifest.")


def _text(plan: Any) -> str:
    """JSON, in which NaN equals NaN."""
    return json.dumps(plan, sort_keys=True)
