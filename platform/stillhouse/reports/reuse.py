"""What the trials of a sweep built once and read again, a line a kind of stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.plan.stage import Stage
from stillhouse.reports.tables import aligned, markdown

_HEADER = ["stage", "built", "reused", "seconds", "seconds spared"]


@dataclass(frozen=True)
class Reuse:
    """The finished stages of one kind.

    Attributes:
        label: Of the stages.
        built: Different ones, whether built by this sweep or found.
        reused: How often a trial took one that another trial had taken before.
        seconds: Of their training, together.
        spared: Seconds that training anew would have taken where one was reused.
    """

    label: str
    built: int
    reused: int
    seconds: float
    spared: float


def reuse(plans: Iterable[Stage], workspace: Workspace) -> list[Reuse]:
    """Kinds of stages in the order of the plans, one plan a trial; nothing where no trial reused any."""
    seconds: dict[str, dict[str, float]] = {}
    again: dict[str, list[float]] = {}
    for plan in plans:
        for stage in filter(workspace.finished, plan.chain()):
            known, repeated = seconds.setdefault(stage.label, {}), again.setdefault(stage.label, [])
            if stage.fingerprint in known:
                repeated.append(known[stage.fingerprint])
            else:
                known[stage.fingerprint] = float(read_manifest(workspace.path(stage))["seconds"])
    if not any(again.values()):
        return []
    return [
        Reuse(label, len(known), len(again[label]), sum(known.values()), sum(again[label]))
        for label, known in seconds.items()
    ]


def reuse_table(found: Sequence[Reuse]) -> str:
    """The kinds as a table for the terminal."""
    return "\n".join(aligned(_HEADER, _cells(found), left={0}))


def reuse_table_markdown(found: Sequence[Reuse]) -> str:
    """The same as a Markdown table."""
    return markdown(_HEADER, _cells(found), left={0})


def _cells(found: Sequence[Reuse]) -> list[list[str]]:
    return [
        [kind.label, f"{kind.built:,}", f"{kind.reused:,}", f"{kind.seconds:,.0f}", f"{kind.spared:,.0f}"]
        for kind in found
    ]
