"""Sentences of several sources: read in their shares, each with the role that it is embedded in."""

from typing import TYPE_CHECKING

from stillhouse.corpora.mixing import MixSource, joined, mix_texts
from stillhouse.corpora.splits import say_split
from stillhouse.experiments.source import PYDOCS, Source
from stillhouse.values.data import AnyStore, StoreMix, TextTable

if TYPE_CHECKING:
    from stillhouse.experiments.kinds.sentences import Sentences
    from stillhouse.experiments.preparation import Preparation

Part = tuple[TextTable, int] | None
Texts = TextTable | list[Part]
"""The texts of the only source, or those of each and their number; None where a source has none."""


def read_mix(sentences: "Sentences", context: "Preparation") -> tuple[Texts, Texts, Texts]:
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
    parts = ([_admitted(part, context) for part in mixed.train], mixed.dev, mixed.test)
    say_split("texts", [sum(part[1] for part in split if part is not None) for split in parts])
    return parts


def _opened(source: Source, context: "Preparation") -> MixSource:
    corpus = context.pydocs().sentences if source.corpus == PYDOCS and source.share else source.corpus
    return MixSource(corpus, source.share, source.read_options(context))


def _admitted(part: Part, context: "Preparation") -> Part:
    """The training texts of a source without those that say what a held-out text says."""
    if part is None:
        return None
    table = context.barrier.without_texts(part[0])
    return table, context.rows(table)


def sentence_store(context: "Preparation", sentences: "Sentences", label: str, texts: Texts) -> AnyStore:
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
