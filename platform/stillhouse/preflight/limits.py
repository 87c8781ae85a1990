"""Limits of the data: the smallest difference that dev can show, and a bank that holds all of the text."""

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.evaluation.suites import fact_of, figure_facts
from stillhouse.preflight.finding import NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.tracking import readable
from stillhouse.values.stage import DevSuite, Stage

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


def full_bank(plans: Iterable[Stage], rows: int) -> list[Finding]:
    """Find a memory bank that holds all of the text.

    Such a bank comes to hold every anchor's own vector. That is masked, so nothing is wrong; but the bank
    never fills, and from the second epoch on each anchor sees the same negatives. The plans are of one run or
    of the extremes of a search; the rows are 0 where there are none, or where their number is not known.
    """
    stages = [stage for plan in plans for stage in plan.chain()]
    banks = [bank for stage in stages if (bank := stage.objective.kwargs.get("bank")) is not None]
    size = max((int(bank.kwargs["size"]) for bank in banks), default=0)
    if not size >= rows > 0:
        return []
    found = (
        f"bank_size={size:,} is no smaller than the text, of {rows:,} rows: the bank comes to hold every "
        "anchor's own vector (masked, as are its duplicates) and the same negatives for all."
    )
    return [Finding("bank", WARNING, found, "Give more text, or a smaller bank.")]
