"""How long stages will take, from what similar stages of the same workspace took."""

import json
from collections.abc import Iterable
from typing import Any

from stillhouse.core.artifacts import MANIFEST, Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import canonical
from stillhouse.values.stage import Stage

_LOOKED_AT = 200
"""How many of the newest stages are looked at."""


def seconds_of(stages: Iterable[Stage], workspace: Workspace) -> float | None:
    """Estimate the seconds of training, one stage after the other; evaluations are not counted.

    Args:
        stages: The stages.
        workspace: Holds finished stages.

    Returns:
        The sum, or None where a stage has nothing to be compared with: no finished stage trains the same
        student on examples of as many columns.
    """
    rates, seconds = _seconds_per_example(workspace), 0.0
    for stage in stages:
        rate = rates.get(_likeness(canonical(stage)))
        if rate is None:
            return None
        seconds += stage.examples_seen * rate
    return seconds


def _seconds_per_example(workspace: Workspace) -> dict[str, float]:
    """Seconds per example of the newest finished stage of each likeness."""
    manifests = sorted(
        workspace.root.glob(f"{Stage.kind}/*/{MANIFEST}"),
        key=lambda path: path.stat().st_mtime_ns,
        reverse=True,
    )
    rates: dict[str, float] = {}
    for path in manifests[:_LOOKED_AT]:
        try:
            manifest = read_manifest(path.parent)
            rates.setdefault(_likeness(manifest["plan"]), manifest["seconds"] / manifest["examples"])
        except (BadInput, OSError, ValueError, KeyError, TypeError, ArithmeticError):
            continue  # an estimate needs no file that is damaged or of another version
    return rates


def _likeness(plan: dict[str, Any]) -> str:
    """What makes stages take equally long per example: student, text lengths and texts per example."""
    parts = plan["with"]
    columns = len(parts["examples"]["with"]["columns"])
    return json.dumps([parts["student"], parts["max_length"], columns], sort_keys=True)
