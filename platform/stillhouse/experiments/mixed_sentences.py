"""Sentences of several sources: read in their shares, each embedded in its role, and put together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stillhouse.corpora.mixing import MixSource, joined, mix_texts
from stillhouse.corpora.splits import say_split
from stillhouse.experiments.sentence_tables import measure_sentences
from stillhouse.experiments.source import PYDOCS, Source
from stillhouse.values.data import StoreMix, TableStore, TextTable
from stillhouse.values.setting import SentenceData

if TYPE_CHECKING:
    from stillhouse.experiments.kinds.sentences import Sentences
    from stillhouse.experiments.preparation import Preparation

Part = tuple[TextTable, int] | None


def prepare_mix(sentences: "Sentences", context: "Preparation") -> SentenceData:
    """Read the sources, and hold texts of each out to measure agreement with the teacher.

    Args:
        sentences: The sources, the number of texts and how many are held out.
        context: What the kinds of data share.
    """
    if sentences.is_pydocs:
        docs = context.pydocs()
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
    mixed = replace(mixed, train=[_admitted(part, context) for part in mixed.train])
    parts = (mixed.train, mixed.dev, mixed.test)
    say_split("texts", [sum(part[1] for part in split if part is not None) for split in parts])
    train = _mix(context, "sentences", sentences.sources, mixed.train, context.trained_on)
    if not context.unread.dev:
        dev = _mix(context, "dev-sentences", sentences.sources, mixed.dev, context.embedded)
        test = _mix(context, "test-sentences", sentences.sources, mixed.test, context.embedded)
        measure_sentences(context, dev, test)
        if context.experiment.selection.heldout_loss:
            context.held_out = dev
    context.reads(train.texts)
    context.facts |= {"corpus": sentences.described, "store": train.fingerprint}
    return SentenceData(train, rows=sum(rows for rows, _ in train.roles))


def _opened(source: Source, context: "Preparation") -> MixSource:
    corpus = context.pydocs().sentences if source.corpus == PYDOCS and source.share else source.corpus
    return MixSource(corpus, source.share, source.read_options(context))


def _admitted(part: Part, context: "Preparation") -> Part:
    """The training texts of a source without those that say what a held-out text says."""
    if part is None:
        return None
    table = context.barrier.without_texts(part[0])
    return table, context.rows(table)


def _mix(
    context: "Preparation",
    label: str,
    sources: Sequence[Source],
    parts: Sequence[Part],
    embed: Callable[[TextTable, str], TableStore],
) -> StoreMix:
    """One store per source, with the prompt of its role, and the texts of all of them."""
    kept = [(source.role, *part) for source, part in zip(sources, parts, strict=True) if part is not None]
    texts = joined(context.workspace, label, [table for _, table, _ in kept])
    return StoreMix(
        texts,
        tuple(embed(table, role) for role, table, _ in kept),
        tuple((rows, role) for role, _, rows in kept),
    )
