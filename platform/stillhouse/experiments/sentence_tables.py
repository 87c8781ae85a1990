"""Sentences read as tables: those to train on, and those that measure a student."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stillhouse.core.identity import spec
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.corpora.splits import LEAST_TEXTS, say_split, split_table
from stillhouse.evaluation.agreement import Agreement
from stillhouse.evaluation.sts import STS, resolve_sts, sts_sets
from stillhouse.experiments.augmented_text import augment_table
from stillhouse.experiments.data_kind import Measure
from stillhouse.experiments.mixed_sentences import Texts, read_mix, sentence_store
from stillhouse.values.data import TextTable
from stillhouse.values.setting import SentenceData

if TYPE_CHECKING:
    from stillhouse.experiments.kinds.sentences import Sentences
    from stillhouse.experiments.preparation import Preparation


AGREEMENT = "agreement_spearman_cosine"
STSB = "sts_stsb_spearman_cosine"


def read_sentences(context: "Preparation", sentences: "Sentences") -> tuple[Texts, Texts, Texts]:
    """Read the sentences to train on, of dev and of test."""
    sentences.augmentation.check()
    context.facts |= {"corpus": sentences.described}
    if sentences.sources:
        return read_mix(sentences, context)
    barrier = context.barrier
    if sentences.is_pydocs:
        docs = context.pydocs()
        barrier.declare("agreement", [docs.dev_sentences, docs.test_sentences])
        return barrier.without_texts(docs.sentences), docs.dev_sentences, docs.test_sentences
    options = sentences.read_options(context)
    table = ingest(context.workspace, sentences.corpus, options, refresh=context.refresh, barrier=barrier)
    left_out = barrier.left_out.get("texts", Counter[str]())
    if context.rows(table) < LEAST_TEXTS and left_out.total():
        raise barrier.refusal("texts", left_out)
    train, dev, test = split_table(context.workspace, table, held_out=sentences.held_out)
    barrier.declare("agreement", [dev, test])
    parts = barrier.without_texts(train), dev, test
    say_split("texts", [context.rows(part) for part in parts])
    return parts


def sentence_data(context: "Preparation", sentences: "Sentences") -> SentenceData:
    """Add copies to the sentences to train on, and name the teacher's vectors of them."""
    train, *_ = context.once(sentences.read)
    if isinstance(train, TextTable):
        device = context.embedding.device
        train, counts = augment_table(sentences.augmentation, context.barrier, train, device)
        context.facts |= counts
    store = sentence_store(context, sentences, sentences.key, train)
    context.reads(store.texts)
    return SentenceData(store, rows=context.rows(store.texts), role=sentences.role)


def sts_texts(root: str) -> Iterator[str]:
    """The sentences of the STS sets that a data root has, of dev and of the locked test."""
    for split in ("dev", "test") if root else ():
        if sts_sets(root, split):
            yield from STS(resolve_sts(root, split)).row_of


def sentence_measures(context: "Preparation", sentences: "Sentences") -> Iterator[Measure]:
    """Yield agreement with the teacher on held-out sentences, and STS where the data root has it."""
    of_role = {"role": sentences.role} if sentences.role else {}
    _, *tables = context.once(sentences.read)
    dev, test = (
        sentence_store(context, sentences, f"{split}-sentences", texts)
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
