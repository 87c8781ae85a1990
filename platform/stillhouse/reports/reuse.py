"""Stages that trials of a sweep built once and reused, one line per kind of stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.reports.layout import markdown_table, table_lines
from stillhouse.values.stage import Stage

_HEADER = ["stage", "built", "reused", "seconds", "seconds spared"]


@dataclass(frozen=True)
class Reuse:
    """The finished stages of one kind.

    Attributes:
        label: Label of the stages.
        built: Number of different stages, whether this sweep built them or found them.
        reused: Number of times that a trial used a stage that an earlier trial had used.
        seconds: Total training time of the different stages, in seconds.
        spared: Seconds that training the reused stages again would have taken.
    """

    label: str
    built: int
    reused: int
    seconds: float
    spared: float


def reuse(plans: Iterable[Stage], workspace: Workspace) -> list[Reuse]:
    """Return the kinds of stages in the order of the plans, one plan per trial; empty if none was reused."""
    seconds: dict[str, dict[str, float]] = {}
    again: dict[str, list[float]] = {}
    for plan in plans:
        for stage in filter(workspace.finished, plan.chain()):
            built, repeated = seconds.setdefault(stage.label, {}), again.setdefault(stage.label, [])
            if stage.fingerprint in built:
                repeated.append(built[stage.fingerprint])
            else:
                built[stage.fingerprint] = float(read_manifest(workspace.path(stage))["seconds"])
    if not any(again.values()):
        return []
    return [
        Reuse(label, len(built), len(again[label]), sum(built.values()), sum(again[label]))
        for label, built in seconds.items()
    ]


def reuse_table(kinds: Sequence[Reuse]) -> str:
    """Format the kinds as a table for the terminal."""
    return "\n".join(table_lines(_HEADER, _cells(kinds)))


def reuse_table_markdown(kinds: Sequence[Reuse]) -> str:
    """Format the same as a Markdown table."""
    return markdown_table(_HEADER, _cells(kinds))


def _cells(kinds: Sequence[Reuse]) -> list[list[str]]:
    return [
        [kind.label, f"{kind.built:,}", f"{kind.reused:,}", f"{kind.seconds:,.0f}", f"{kind.spared:,.0f}"]
        for kind in kinds
    ]
