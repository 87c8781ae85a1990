"""Sentences read from a corpus as tables, and what measures a student of them."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stillhouse.core.identity import spec
from stillhouse.core.roles import PLAIN
from stillhouse.corpora.reading.corpus import ReadOptions
from stillhouse.corpora.reading.ingest import ingest
from stillhouse.corpora.splits import LEAST_TEXTS, say_split, split_table
from stillhouse.evaluation.agreement import Agreement
from stillhouse.evaluation.sts import STS, resolve_sts, sts_sets
from stillhouse.values.data import AnyStore, TextTable

if TYPE_CHECKING:
    from stillhouse.experiments.preparation import Preparation


AGREEMENT = "agreement_spearman_cosine"
STSB = "sts_stsb_spearman_cosine"


def read_corpus(
    context: "Preparation", corpus: str, held_out: int, options: ReadOptions
) -> tuple[TextTable, TextTable, TextTable]:
    """Read a corpus and split it into training, dev and test sentences.

    Args:
        context: The workspace, whether the corpus is read again, and what is measured with and left out.
        corpus: A file, a folder, a glob, a URL, or ``hf:``.
        held_out: Sentences for dev and for test each.
        options: How it is read.
    """
    barrier = context.barrier
    table = ingest(context.workspace, corpus, options, refresh=context.refresh, barrier=barrier)
    left_out = barrier.left_out.get("texts", Counter[str]())
    if context.rows(table) < LEAST_TEXTS and left_out.total():
        raise barrier.refusal("texts", left_out)
    train, dev, test = split_table(context.workspace, table, held_out=held_out)
    barrier.declare("agreement", [dev, test])
    parts = barrier.without_texts(train), dev, test
    say_split("texts", [context.rows(part) for part in parts])
    return parts


def sts_texts(root: str) -> Iterator[str]:
    """The sentences of the STS sets that a data root has, of dev and of the locked test."""
    for split in ("dev", "test") if root else ():
        if sts_sets(root, split):
            yield from STS(resolve_sts(root, split)).row_of


def measure_sentences(context: "Preparation", dev: AnyStore, test: AnyStore, role: str = PLAIN) -> None:
    """Register agreement with the teacher on texts of a role, and STS where the data root has it."""
    of_role = {"role": role} if role else {}
    context.measure(
        "agreement",
        AGREEMENT,
        dev=lambda: spec(Agreement, store=dev, pairs=500, **of_role),
        test=spec(Agreement, store=test, pairs=500, **of_role),
    )
    root = context.experiment.selection.data_root
    if root:
        data = resolve_sts(root, "dev")
        context.measure(
            "stsb", STSB, dev=lambda: spec(STS, data=data), test=spec(STS, data=resolve_sts(root, "test"))
        )
