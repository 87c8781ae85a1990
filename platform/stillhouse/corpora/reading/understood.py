"""The report of a reader: what it took a source for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stillhouse.core.console import say

_SHOWN = 60


@dataclass(frozen=True)
class Understood:
    """What a reader took a source for.

    Attributes:
        source: The source's label.
        form: Its format, with delimiter and compression.
        rows: How many rows were read, kept, and left out, and why.
        roles: Column of each role.
        unused: Columns that are not used.
        skipped: Files of its folder that were not read.
        examples: A text of each role.
    """

    source: str
    form: str
    rows: str
    roles: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    examples: Mapping[str, str] = field(default_factory=dict)

    def say(self) -> None:
        """Print it."""
        unused = f"; not used: {', '.join(self.unused)}" if self.unused else ""
        say(f"  {self.source}: {self.form}; {self.rows}{unused}")
        if self.skipped:
            more = f" and {len(self.skipped) - 5:,} more" if len(self.skipped) > 5 else ""
            say(f"    skipped: {', '.join(self.skipped[:5])}{more}")
        for role, column in self.roles.items():
            text = self.examples.get(role, "")
            say(f"    {role:<9} <- {column:<12} {text[:_SHOWN]}{'…' if len(text) > _SHOWN else ''}".rstrip())

    def noted(self) -> dict[str, Any]:
        """It as JSON has it."""
        return asdict(self)


def restored(noted: Mapping[str, Any]) -> Understood:
    """What `Understood.noted` gave."""
    return Understood(**{**noted, "unused": tuple(noted["unused"]), "skipped": tuple(noted["skipped"])})
