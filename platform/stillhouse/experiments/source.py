"""One of several corpora that are trained on together."""

from dataclasses import dataclass, fields

from stillhouse.core.errors import require
from stillhouse.core.roles import ROLES
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.columns import Columns

PYDOCS = "pydocs"
_OF_A_MIX = ("corpus", "share", "role")


@dataclass(frozen=True)
class Source(Columns):
    """A corpus and its share of the texts.

    Attributes:
        corpus: As ``sentences.corpus``.
        share: Its part of the texts, relative to the sum of all shares; 0 takes none.
        role: What its texts are to teacher and student: ``query``, ``document``, or empty for plain texts.
        column: Column of the texts, where the corpus has columns; empty takes the usual one.
        split: Whether the texts are split into sentences; files of WikiExtractor always are, unless they are
            packed.
        min_words: Shortest text that is kept, in words.
        max_words: Longest text that is kept as it is, in words.
        longer: What happens to longer texts: ``drop`` leaves them out, ``cut`` keeps their first words,
            ``pack`` makes passages of consecutive sentences, each as long as fits; no longer than the
            student reads, in tokens.
        encoding: Encoding of the corpus, where it is plain text.
    """

    corpus: str = ""
    share: float = 1.0
    role: str = ""
    column: str = ""
    split: bool = False
    min_words: int = 1
    max_words: int = 4000
    longer: str = "drop"
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Check the ranges, and that pydocs is taken as it is."""
        check_types(self, "sentences.sources")
        self.check_columns("sentences")
        name = "sentences.sources"
        require(bool(self.corpus), f"every one of {name} must name its corpus", corpus=self.corpus)
        require(0 <= self.share < float("inf"), f"share of {name} >= 0", corpus=self.corpus, share=self.share)
        require(
            self.role in ("", *ROLES),
            f"role of {name} in {ROLES} or empty",
            corpus=self.corpus,
            role=self.role,
        )
        if self.corpus == PYDOCS:
            changed = {
                each.name: getattr(self, each.name)
                for each in fields(self)
                if each.name not in _OF_A_MIX and getattr(self, each.name) != each.default
            }
            require(not changed, "pydocs must be taken as it is: its sentences are chosen already", **changed)
