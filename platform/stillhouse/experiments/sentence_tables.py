"""Sentences of one corpus, or of several in shares, read as tables: to train on, and to measure a student."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from stillhouse.core.identity import spec
from stillhouse.corpora.mixing import MixSource, joined, mix_texts
from stillhouse.corpora.pydocs.extraction import glimpse, installed_packages
from stillhouse.corpora.pydocs.pydocs_corpus import is_extracted
from stillhouse.corpora.reading.corpus import DROP, ReadOptions, read_texts
from stillhouse.corpora.reading.ingest import ingest, quick_to_ingest
from stillhouse.corpora.reading.sources import CORPUS, Reading
from stillhouse.corpora.splits import LEAST_TEXTS, say_split, split_table
from stillhouse.evaluation.agreement import Agreement
from stillhouse.evaluation.sts import STS, resolve_sts, sts_sets
from stillhouse.experiments.augmented_text import augment_table, check_copies
from stillhouse.experiments.data_kind import Measure, Reader
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.source import PYDOCS, Source
from stillhouse.values.data import AnyStore, Store, StoreMix, TextTable
from stillhouse.values.setting import SentenceData

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation

AGREEMENT = "agreement_spearman_cosine"
STSB = "sts_stsb_spearman_cosine"
Part = tuple[TextTable, int] | None
Texts = TextTable | list[Part]
"""The texts of the only source, or those of each and their number; None where a source has none."""


class SentenceReader(Reader[Sentences, SentenceData]):
    """The reader of sentences."""

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing STS sets and copies that cannot be made."""
        if experiment.selection.by == "stsb":
            resolve_sts(experiment.selection.data_root, "dev", ("STSB",))
        check_copies(self.kind.augmentation)
        for source in self.kind.sources or (self.kind,):
            read_options(source)

    def sketch(self, experiment: "Experiment") -> SentenceData:
        """Text that is not there."""
        texts = TextTable(f"placeholder {self.kind.key}")
        return SentenceData(Store(texts, experiment.placeholder_teacher), rows=1 << 40)

    def measured(self, context: "Preparation") -> dict[str, list[str]]:
        """The sentences of STS; those of agreement are held out of the corpus once it is read."""
        root = context.experiment.selection.data_root
        splits = [split for split in ("dev", "test") if root and sts_sets(root, split)]
        texts = [text for split in splits for text in STS(resolve_sts(root, split)).row_of]
        return {"sts": texts} if texts else {}

    def read(self, context: "Preparation") -> tuple[Texts, Texts, Texts]:
        """The training, dev and test sentences, each as a table of texts, or as one of each source."""
        kind = self.kind
        check_copies(kind.augmentation)
        context.facts |= {"corpus": kind.described}
        if kind.sources:
            return _read_mix(kind, context)
        barrier = context.barrier
        if kind.is_pydocs:
            docs = context.pydocs
            barrier.declare("agreement", [docs.dev_sentences, docs.test_sentences])
            return barrier.without_texts(docs.sentences), docs.dev_sentences, docs.test_sentences
        options = read_options(kind, context)
        table = ingest(context.workspace, kind.corpus, options, refresh=context.refresh, barrier=barrier)
        left_out = barrier.left_out.get("texts", Counter[str]())
        if context.rows(table) < LEAST_TEXTS and left_out.total():
            raise barrier.refusal("texts", left_out)
        train, dev, test = split_table(context.workspace, table, held_out=kind.held_out)
        barrier.declare("agreement", [dev, test])
        parts = barrier.without_texts(train), dev, test
        say_split("texts", [context.rows(part) for part in parts])
        return parts

    def prepare(self, context: "Preparation") -> SentenceData:
        """Add copies to the sentences to train on, and name the teacher's vectors of them."""
        kind = self.kind
        train, *_ = context.once(self.read)
        if isinstance(train, TextTable):
            device = context.embedding.device
            train, counts = augment_table(kind.augmentation, context.barrier, train, device)
            context.facts |= counts
        store = _store(context, kind, kind.key, train)
        context.words.append(store.texts)
        return SentenceData(store, rows=context.rows(store.texts), role=kind.role)

    def measures(self, context: "Preparation") -> Iterator[Measure]:
        """Yield agreement with the teacher on held-out sentences, and STS where the data root has it."""
        of_role = {"role": self.kind.role} if self.kind.role else {}
        _, *tables = context.once(self.read)
        dev, test = (
            _store(context, self.kind, f"{split}-sentences", texts)
            for split, texts in zip(("dev", "test"), tables, strict=True)
        )
        selection = context.experiment.selection
        yield Measure(
            "agreement",
            AGREEMENT,
            spec(Agreement, store=dev, pairs=500, **of_role),
            spec(Agreement, store=test, pairs=500, **of_role),
            held_out=dev if selection.heldout_loss else None,
        )
        if root := selection.data_root:
            data, final = (resolve_sts(root, split) for split in ("dev", "test"))
            yield Measure("stsb", STSB, spec(STS, data=data), spec(STS, data=final))

    def at_hand(self, context: "Preparation") -> bool:
        """Return whether the corpus is small or has been read, and no copies are to be translated."""
        return not self.kind.augmentation.translators and all(
            is_extracted(context.workspace)
            if part.corpus == PYDOCS
            else quick_to_ingest(
                context.workspace, part.corpus, read_options(part, context), lambda: context.barrier
            )
            for part in self.kind.parts
        )

    def glimpse(self, count: int) -> list[str]:
        """The first texts of the first corpus, or sentences from files all over ``pydocs``."""
        first = self.kind.parts[0]
        if first.corpus == PYDOCS:
            return glimpse(installed_packages(), count)
        options = replace(read_options(first), limit=None)
        reading = Reading[str](first.corpus, CORPUS, options.schema, label=first.corpus)
        texts = read_texts(first.corpus, options, reading=reading)
        found = list(dict.fromkeys(islice((text for text in texts if isinstance(text, str)), count)))
        first_few = f"the first {len(found):,} texts; the rest was not read"
        reading.understood(len(found), rows=len(found), limit=first_few).say()
        return found


def read_options(source: Sentences | Source, context: "Preparation | None" = None) -> ReadOptions:
    """The options of reading a corpus; values that no text can satisfy are refused.

    The context knows the student, whose tokens count where texts are cut or packed; None counts words alone.

    Raises:
        BadInput: See `ReadOptions`.
    """
    more: dict[str, Any] = {}
    if isinstance(source, Sentences):
        more = {"deduplicate": source.deduplicate, "limit": source.count or None}
    if context is not None and source.longer != DROP:
        more["tokens"] = context.read_by_student(source.role)
    return ReadOptions(
        column=source.column or None,
        split_sentences=source.split or None,
        min_words=source.min_words,
        max_words=source.max_words,
        encoding=source.encoding,
        longer=source.longer,
        schema=source.schema("sentences"),
        **more,
    )


def _read_mix(sentences: Sentences, context: "Preparation") -> tuple[Texts, Texts, Texts]:
    """Read the sources, and hold texts of each out to measure agreement with the teacher."""
    if sentences.is_pydocs:
        docs = context.pydocs
        context.barrier.declare("pydocs", [docs.dev_sentences, docs.test_sentences])
    mixed = mix_texts(
        context.workspace,
        [_opened(source, context) for source in sentences.sources],
        count=sentences.count or 0,
        held_out=sentences.held_out,
        barrier=context.barrier,
        refresh=context.refresh,
    )
    context.barrier.declare("agreement", (part[0] for part in (*mixed.dev, *mixed.test) if part is not None))
    parts = ([_admitted(part, context) for part in mixed.train], mixed.dev, mixed.test)
    say_split("texts", [sum(part[1] for part in split if part is not None) for split in parts])
    return parts


def _opened(source: Source, context: "Preparation") -> MixSource:
    corpus = context.pydocs.sentences if source.corpus == PYDOCS and source.share else source.corpus
    return MixSource(corpus, source.share, read_options(source, context))


def _admitted(part: Part, context: "Preparation") -> Part:
    """The training texts of a source without those that say what a held-out text says."""
    if part is None:
        return None
    table = context.barrier.without_texts(part[0])
    return table, context.rows(table)


def _store(context: "Preparation", sentences: Sentences, label: str, texts: Texts) -> AnyStore:
    """Name the teacher's vectors of sentences: one store per source, with the prompt of its role."""
    if isinstance(texts, TextTable):
        return context.store(texts, sentences.role)
    sources = zip(sentences.sources, texts, strict=True)
    kept = [(source.role, *part) for source, part in sources if part is not None]
    return StoreMix(
        joined(context.workspace, label, [table for _, table, _ in kept]),
        tuple(context.store(table, role) for role, table, _ in kept),
        tuple((rows, role) for role, _, rows in kept),
    )
