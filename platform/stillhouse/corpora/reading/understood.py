"""Sources as readers understood them: printed before any work, kept in a note, and given to ``--json``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from stillhouse.core.console import say
from stillhouse.corpora.reading.languages import NAMES

_SHOWN = 60
_recordings: list[list["Understood"]] = []


@dataclass(frozen=True)
class Understood:
    """A source as its reader understood it; ``read`` is the sum of ``kept``, ``duplicates`` and ``aside``.

    Attributes:
        source: The source's label.
        form: Its format, with compression, delimiter and quoting.
        files: Number of files.
        language: Language of its texts; empty where it is not recognised.
        read: Rows that were read.
        kept: Those that are kept.
        duplicates: Those that are equal to others, or left out by a limit.
        aside: Those that are not used or set aside, by reason.
        limit: How a limit was drawn; empty where there is none.
        note: What else there is to say of the rows.
        roles: Column of each role.
        labels: Number of rows of each label, with its meaning.
        unused: Columns that are not used.
        skipped: Files of its folder that were not read.
        examples: A text of each role.
    """

    source: str
    form: str
    files: int = 1
    language: str = ""
    read: int = 0
    kept: int = 0
    duplicates: int = 0
    aside: Mapping[str, int] = field(default_factory=dict)
    limit: str = ""
    note: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    examples: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """It as text: a line for the whole, and one per role."""
        aside = ", ".join(f"{count:,} {reason}" for reason, count in self.aside.items()) or "0 set aside"
        rows = f"{self.read:,} rows read: {self.kept:,} kept, {self.duplicates:,} duplicates, {aside}"
        if self.limit:
            rows = f"{self.limit}, {aside}"
        language = f", {NAMES.get(self.language, self.language)}" if self.language else ""
        more = [f"{self.files:,} files"] if self.files > 1 else []
        more += [self.note] if self.note else []
        labels = ", ".join(f"{label}: {count:,}" for label, count in self.labels.items())
        more += [f"labels {labels}"] if labels else []
        more += [f"not used: {', '.join(self.unused)}"] if self.unused else []
        found = [
            f"{self.source}: {self.form}{language}; " + "; ".join([*([rows] if self.read else []), *more])
        ]
        if self.skipped:
            further = f" and {len(self.skipped) - 5:,} more" if len(self.skipped) > 5 else ""
            found.append(f"  skipped: {', '.join(self.skipped[:5])}{further}")
        for role, column in self.roles.items():
            text = self.examples.get(role, "")
            shown = f"{text[:_SHOWN]}{'…' if len(text) > _SHOWN else ''}"
            found.append(f"  {role:<9} <- {column:<12} {shown}".rstrip())
        return found

    def say(self) -> None:
        """Print it, and add it to what is being recorded."""
        say("\n".join(f"  {line}" for line in self.lines()))
        for recording in _recordings:
            if self not in recording:
                recording.append(self)

    def noted(self) -> dict[str, Any]:
        """It as JSON has it."""
        return asdict(self)


def restored(noted: Mapping[str, Any]) -> Understood:
    """Restore what `Understood.noted` gave; a note of an earlier version may have other fields."""
    known = {each.name for each in fields(Understood)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in noted.items()
    }
    return Understood(**{name: value for name, value in values.items() if name in known})


@contextmanager
def recorded() -> Iterator[list[Understood]]:
    """Record what readers say while this is open."""
    found: list[Understood] = []
    _recordings.append(found)
    try:
        yield found
    finally:
        _recordings[:] = [each for each in _recordings if each is not found]
