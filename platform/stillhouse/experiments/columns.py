"""Fields that every kind of data with files has: what their columns and labels do not say themselves."""

from dataclasses import dataclass, field, fields

from stillhouse.corpora.reading.schema import Schema
from stillhouse.experiments.text_in_memory import NAMES


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The schema of files with columns.

    Attributes:
        columns: Column of each role where the names do not tell it: ``query: question, passage: answer``, in
            an experiment file as a mapping; ``unused`` names one that is not used, or a list of them. In a
            file without a header columns are called 1, 2, ….
        labels: Meaning of each label where its name does not tell it: ``0: contradiction, 1: entailment,
            2: neutral``.
        positive: Which rows are used, by another column: ``score >= 4``.
        delimiter: Character between the cells of a text file, or ``tab``; empty recognises it.
        header: Whether the first line has the names of the columns: ``yes`` or ``no``; empty recognises it.
        language: Language of the texts, such as ``de``; empty recognises it.
    """

    columns: str = field(default="", metadata=NAMES)
    labels: str = field(default="", metadata=NAMES)
    positive: str = ""
    delimiter: str = ""
    header: str | bool = ""
    language: str | bool = ""

    def schema(self, owner: str) -> Schema:
        """The value that readers take, by the key of the kind of data.

        Raises:
            BadInput: A field cannot be understood.
        """
        found = Schema(**{each.name: getattr(self, each.name) for each in fields(Columns)}, owner=owner)
        found.check()
        return found

    def check_columns(self, owner: str) -> None:
        """Refuse fields that cannot be understood."""
        for name in ("header", "language"):  # YAML reads `no`, which also is Norwegian, as false.
            if isinstance(given := getattr(self, name), bool):
                object.__setattr__(self, name, "yes" if given else "no")
        if any(getattr(self, each.name) for each in fields(Columns)):
            self.schema(owner)
