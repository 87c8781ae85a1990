"""Unlabelled sentences: what a student is distilled on."""

from dataclasses import dataclass, field, fields
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.roles import ROLES
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.augmentation import Augmentation
from stillhouse.experiments.columns import Columns
from stillhouse.experiments.data_kind import PYDOCS_SENTENCES, DataKind, check_count, of_pydocs
from stillhouse.experiments.kinds.collection import SearchCollection
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.source import PYDOCS, Source
from stillhouse.experiments.text_in_memory import IN_MEMORY, held_texts
from stillhouse.values.setting import SentenceData


@dataclass(frozen=True)
class Sentences(Columns, DataKind[SentenceData]):
    """Unlabelled text to distil on.

    Attributes:
        corpus: ``pydocs``, a file, a folder, a glob, a URL, or ``hf:name[:config][:split]``. Of MS MARCO's
            folder, the passages and the training queries.
        column: Column of the texts, where the corpus has columns; empty takes the usual one.
        split: Whether the texts are split into sentences; files of WikiExtractor always are.
        min_words: Shortest text that is kept, in words.
        max_words: Longest text that is kept as it is, in words.
        longer: What happens to longer texts: ``drop`` leaves them out, ``cut`` keeps their first words,
            ``pack`` makes passages of consecutive sentences, each as long as fits; no longer than the
            student reads, in tokens.
        deduplicate: Whether only the first of equal texts is kept.
        encoding: Encoding of the corpus, where it is plain text.
        count: Number of sentences; default: all of a corpus, 20,480 of ``pydocs``.
        held_out: Sentences held out to measure agreement with the teacher, for dev and for test each.
        augmentation: Copies that are added to the sentences.
        role: What the sentences are to teacher and student: ``query``, ``document``, or empty for plain
            texts. It decides which prompt is put before them.
        texts: Texts in memory instead of a corpus: a list, a pandas Series or DataFrame, or a
            ``datasets.Dataset``, of the last two the ``column``.
        sources: Several corpora instead of one, each with its share of ``count`` texts and its role: a list
            of mappings with ``corpus``, ``share``, ``role``, and the fields above that say how it is read.
    """

    key = "sentences"
    title = "unlabelled sentences"
    remedy = "Give --corpus."
    is_source = True
    default = True
    counts_as = "sentences"
    selects = ("agreement", "stsb")
    read_by = "stillhouse.experiments.sentence_tables:SentenceReader"
    corpus: str = "pydocs"
    column: str = ""
    split: bool = False
    min_words: int = 1
    max_words: int = 4000
    longer: str = "drop"
    deduplicate: bool = True
    encoding: str = "utf-8"
    count: int | None = None
    held_out: int = 1000
    augmentation: Augmentation = field(default_factory=Augmentation)
    role: str = ""
    sources: tuple[Source, ...] = ()
    texts: Any = field(default=None, metadata={IN_MEMORY: ("corpus", "column")})

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "sentences", corpus="Text in memory is given as texts=[…].")
        self.check_columns("sentences")
        if self.texts is not None:
            self._hold()
        require(self.role in ("", *ROLES), f"sentences.role in {ROLES} or empty", role=self.role)
        check_count("sentences.count", self.count)
        require(self.held_out > 0, "sentences.held_out > 0", held_out=self.held_out)
        if self.sources:
            self._check_sources()

    def _hold(self) -> None:
        """Check the texts in memory, which stand for a corpus until they have a file."""
        held = held_texts(self.texts, self.column)
        require(
            self.corpus in (PYDOCS, str(held)) and not self.sources,
            "sentences.texts must come without a corpus",
            corpus=self.corpus,
            sources=len(self.sources),
        )
        object.__setattr__(self, "texts", held)
        object.__setattr__(self, "corpus", str(held))

    def _check_sources(self) -> None:
        """Check that the shares sum to something, and that nothing else says how the sources are read."""
        total = sum(source.share for source in self.sources)
        require(
            total > 0,
            "the shares of sentences.sources must sum to something positive",
            shares=[source.share for source in self.sources],
        )
        alone = Sentences(count=self.count, held_out=self.held_out)
        changed = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "sources" and getattr(self, each.name) != getattr(alone, each.name)
        }
        require(
            not changed,
            "several sources must each say how they are read, and take no copies",
            remedy="Move these fields into the entries of sentences.sources, or leave them out.",
            **changed,
        )
        require(
            bool(self.count),
            "several sources must have shares of a number of texts",
            remedy="Give sentences.count (--sentences).",
            count=self.count,
        )
        one = [source.corpus for source in self.sources if source.corpus == PYDOCS]
        require(len(one) < 2, "pydocs must be one source", sources=len(one))

    @property
    def is_pydocs(self) -> bool:
        """True if the text is the corpus ``pydocs``, which has queries and labelled pairs of its own."""
        return PYDOCS in self.corpora

    @property
    def corpora(self) -> tuple[str, ...]:
        """The corpora that texts are taken from."""
        shared = (source.corpus for source in self.sources if source.share)
        return tuple(shared) if self.sources else (self.corpus,)

    @property
    def stated_rows(self) -> int:
        """Number of texts that are taken; 0 for all there are."""
        return of_pydocs(self.count, PYDOCS_SENTENCES if self.corpora == (PYDOCS,) else 0)

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of each corpus."""
        return tuple(part.role for part in self.parts)

    @property
    def parts(self) -> "tuple[Source | Sentences, ...]":
        """The values with the options of reading, one per corpus."""
        return tuple(source for source in self.sources if source.share) or (self,)

    @property
    def described(self) -> str:
        """The corpora, with their shares where there are several."""
        total = sum(source.share for source in self.sources)
        shares = (f"{source.corpus} ({source.share / total:.0%})" for source in self.sources if source.share)
        return ", ".join(shares) if self.sources else self.corpus

    def brings(self) -> tuple[DataKind[Any], ...]:
        """The queries and the labelled pairs of ``pydocs``."""
        return (SearchCollection(), Pairs()) if self.is_pydocs else ()
