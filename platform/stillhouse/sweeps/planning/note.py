"""A plan is kept in the workspace, and the sweep that it is of says at its end how it came out."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.machine import describe_machine
from stillhouse.core.notes import read_note, write_note
from stillhouse.sweeps.planning.arithmetic import PARTS

PLANS, PLAN, OUTCOME = "plans", "forecast.json", "outcome.json"
"""The folder of all plans in a workspace, a plan, and how the sweep that it is of came out."""


class Clock:
    """Seconds of each part of a command, as they pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def part(self, name: str, *, within: str = "") -> Iterator[None]:
        """Count the seconds of this block for a part.

        Args:
            name: The part.
            within: The part whose block this one is in, and for which its seconds do not count.
        """
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)
            if within:
                self.add(within, began - time.monotonic())

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a part."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def keep_plan(folder: Path, identity: str, content: Mapping[str, Any]) -> None:
    """Keep a plan in a folder; the outcome of an earlier one goes.

    Args:
        folder: The folder of the newest plan of its kind.
        identity: Of what was planned.
        content: The plan, as `--json` writes it.
    """
    (folder / OUTCOME).unlink(missing_ok=True)
    load = describe_machine(1)["load"]
    write_note(folder / PLAN, {"identity": identity, "load": load, **content})


def outcome_lines(folder: Path, identity: str, took: Mapping[str, float]) -> list[str]:
    """Compare the plan of a sweep, if one was made for it, with what it took; once.

    Args:
        folder: The folder of the newest plan of its kind.
        identity: Of what was done.
        took: Seconds of each part.
    """
    plan = read_note(folder / PLAN, "Its outcome is not compared.")
    if plan is None or plan.get("identity") != identity or (folder / OUTCOME).exists():
        return []
    planned = {name: float(seconds) for name, seconds in plan["seconds"].items()}
    write_note(folder / OUTCOME, {"planned": planned, "took": dict(took)})
    names = [name for name in PARTS if max(planned.get(name, 0.0), took.get(name, 0.0)) >= _WORTH_SAYING_S]
    rows = [(name, planned.get(name, 0.0), took.get(name, 0.0)) for name in names]
    rows.append(("in all", sum(planned.values()), sum(took.values())))
    before, now = plan.get("load"), describe_machine(1)["load"]
    return [
        "plan and outcome:",
        *(
            f"  {name}: planned {planned_s:,.0f} s, took {took_s:,.0f} s{_ratio(planned_s, took_s)}"
            for name, planned_s, took_s in rows
        ),
        f"  load of this machine: {before} when it was planned, {now} now",
    ]


_WORTH_SAYING_S = 1.0


def _ratio(planned: float, took: float) -> str:
    """How many times as long as planned."""
    return f" ({took / planned:.2f} times)" if planned > 0 else ""
