"""Unlabelled sentences: what a student is distilled on."""

from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.roles import ROLES
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.augmentation import Augmentation
from stillhouse.experiments.columns import Columns
from stillhouse.experiments.data_kind import PYDOCS_SENTENCES, DataKind, Measure, check_count, of_pydocs
from stillhouse.experiments.kinds.collection import SearchCollection
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.source import PYDOCS, Source, read_options
from stillhouse.experiments.text_in_memory import IN_MEMORY, Held, held_texts
from stillhouse.values.data import Store, TextTable
from stillhouse.values.setting import SentenceData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from stillhouse.corpora.reading.corpus import ReadOptions
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.mixed_sentences import Texts
    from stillhouse.experiments.preparation import Preparation


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
    texts: Any = field(default=None, metadata=IN_MEMORY)

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

    def in_files(self, root: "Path") -> "Sentences":
        """See `DataKind.in_files`."""
        held: Held | None = self.texts
        return self if held is None else replace(self, corpus=held.written(root), texts=None, column="")

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
        return tuple(part.role for part in self._parts)

    @property
    def _parts(self) -> "tuple[Source | Sentences, ...]":
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

    def selects(self) -> tuple[str, ...]:
        """By agreement with the teacher, or by STS-B."""
        return ("agreement", "stsb")

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing STS sets and copies that cannot be made."""
        from stillhouse.evaluation.sts import resolve_sts

        if experiment.selection.by == "stsb":
            resolve_sts(experiment.selection.data_root, "dev", ("STSB",))
        self.augmentation.check()
        for source in self.sources or (self,):
            source.read_options()

    def sketch(self, experiment: "Experiment") -> SentenceData:
        """Text that is not there."""
        texts = TextTable(f"placeholder {self.key}")
        return SentenceData(Store(texts, experiment.placeholder_teacher), rows=1 << 40)

    def measured(self, context: "Preparation") -> "Mapping[str, list[str]]":
        """The sentences of STS; those of agreement are held out of the corpus once it is read."""
        from stillhouse.experiments.sentence_tables import sts_texts

        texts = list(sts_texts(context.experiment.selection.data_root))
        return {"sts": texts} if texts else {}

    def measures(self, context: "Preparation") -> "Iterable[Measure]":
        """Agreement with the teacher on held-out sentences, and STS where the data root has it."""
        from stillhouse.experiments.sentence_tables import sentence_measures

        return sentence_measures(context, self)

    def prepare(self, context: "Preparation") -> SentenceData:
        """Name the teacher's vectors of the sentences to train on, and of their copies."""
        from stillhouse.experiments.sentence_tables import sentence_data

        return sentence_data(context, self)

    def read(self, context: "Preparation") -> "tuple[Texts, Texts, Texts]":
        """The training, dev and test sentences, each as a table of texts, or as one of each source."""
        from stillhouse.experiments.sentence_tables import read_sentences

        return read_sentences(context, self)

    def read_options(self, context: "Preparation | None" = None) -> "ReadOptions":
        """Return the options of reading the corpus."""
        return read_options(self, context, deduplicate=self.deduplicate, limit=self.count or None)

    def at_hand(self, context: "Preparation") -> bool:
        """Return whether the corpus is small or has been read, and no copies are to be translated."""
        from stillhouse.corpora.pydocs.pydocs_corpus import is_extracted
        from stillhouse.corpora.reading.ingest import quick_to_ingest

        return not self.augmentation.translators and all(
            is_extracted(context.workspace)
            if part.corpus == PYDOCS
            else quick_to_ingest(
                context.workspace, part.corpus, part.read_options(context), lambda: context.barrier
            )
            for part in self._parts
        )

    def glimpse(self, count: int) -> list[str]:
        """The first texts of the first corpus, or sentences from files all over ``pydocs``."""
        from stillhouse.corpora.pydocs.extraction import glimpse, installed_packages
        from stillhouse.corpora.reading.corpus import read_texts
        from stillhouse.corpora.reading.sources import CORPUS, Reading

        first = self._parts[0]
        if first.corpus == PYDOCS:
            return glimpse(installed_packages(), count)
        options = replace(first.read_options(), limit=None)
        reading = Reading[str](first.corpus, CORPUS, options.schema, label=first.corpus)
        texts = read_texts(first.corpus, options, reading=reading)
        found = list(dict.fromkeys(islice((text for text in texts if isinstance(text, str)), count)))
        first_few = f"the first {len(found):,} texts; the rest was not read"
        reading.understood(len(found), rows=len(found), limit=first_few).say()
        return found


def summary_of_sentences(facts: dict[str, Any]) -> str:
    """Say in one line what the teacher has embedded."""
    return (
        f"  {facts['sentences']:,} sentences of {facts['corpus']} embedded by {facts['teacher']} "
        f"({facts['compute']}), {facts['pairs']:,} labelled pairs, store {facts['store']}"
    )
