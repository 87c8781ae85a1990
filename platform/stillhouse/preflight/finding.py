"""Findings of checks: what is wrong, how bad it is, and what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.core.console import warn

ERROR, WARNING, NOTE = "error", "warning", "note"
LEVELS = (ERROR, WARNING, NOTE)
"""From the worst. An error makes a run worthless or ends it; a warning is rarely intended; a note informs."""


@dataclass(frozen=True)
class Finding:
    """One thing that a check, such as ``weights``, found, in whole sentences; its level is one of `LEVELS`.

    The remedy is empty where nothing need be done. ``data`` says what a source was taken for; None for other
    findings.
    """

    check: str
    level: str
    found: str
    remedy: str = ""
    data: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        """``warning (prompts): … …``."""
        return f"{self.level} ({self.check}): {self.found}{f' {self.remedy}' if self.remedy else ''}"


def from_the_worst(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by their level; those of one level keep their order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is an error."""
    return any(finding.level == ERROR for finding in findings)


def print_concerns(findings: Iterable[Finding]) -> None:
    """Print the errors and warnings, one line each, to standard error."""
    for finding in from_the_worst(findings):
        if finding.level != NOTE:
            warn(str(finding))
