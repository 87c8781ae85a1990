"""The smallest difference that a dev split can show."""

import contextlib
import dataclasses
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.evaluation.suites import fact_of, figure_facts
from stillhouse.preflight.finding import NOTE, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.tracking import readable
from stillhouse.values.stage import DevSuite

_SPREAD = 0.25
"""Standard deviation over queries of the difference of two reciprocal ranks (docs/howto/search.md)."""


def dev_resolution(planned: Planned) -> list[Finding]:
    """Say which differences the dev split can show; nothing where it has not been read."""
    dev = planned.setting.dev
    said = resolution(dev, dev.select, planned.workspace) if planned.is_read else ""
    return [Finding("dev", NOTE, f"{said}.")] if said else []


def resolution(dev: DevSuite, quality: str, workspace: Workspace) -> str:
    """Say which differences a dev split of queries can show; empty for figures of other items."""
    fact = fact_of(quality, _facts(dev, workspace))
    if fact.get("unit") != "queries":
        return ""
    count = int(fact["count"])
    if count < 2:
        return "dev has one query: no difference has an interval"
    least = 1.96 * _SPREAD / count**0.5
    return (
        f"dev has {count:,} queries: differences of {readable(quality)} below about {least:.2f} will not be "
        "told apart"
    )


def _facts(dev: DevSuite, workspace: Workspace) -> dict[str, dict[str, Any]]:
    """What is known of the figures before the teacher has embedded anything."""
    facts: dict[str, dict[str, Any]] = {}
    for each in dev.evaluators:
        with contextlib.suppress(BadInput):
            facts |= figure_facts(dataclasses.replace(dev, evaluators=(each,)), workspace)
    return facts
