"""Parallel text, read from files as training, dev and test pairs, and what measures it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.parallel import PARALLEL, ParallelCorpus, moses_pair
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.reading.sources import hub_name, list_files
from stillhouse.corpora.reading.translations import pairs_of_corpora, split_parallel, write_parallel
from stillhouse.corpora.splits import say_split
from stillhouse.corpora.tables import count_rows, open_rows, open_texts
from stillhouse.evaluation.benchmarks.translation import find_bitexts
from stillhouse.evaluation.crosslingual_sts import (
    CrossLingualSTS,
    crosslingual_sets,
    resolve_crosslingual_sts,
)
from stillhouse.evaluation.translation_accuracy import Translations
from stillhouse.experiments.data_kind import Measure, Reader
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.values.data import AllRows, Examples, Store, TextTable
from stillhouse.values.setting import ParallelData, SentenceData

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation
    from stillhouse.experiments.selection import Selection

VERSION = 3
ACCURACY = "translation_mean_accuracy"


class ParallelReader(Reader[Parallel, ParallelData]):
    """The reader of parallel text."""

    def check_files(self) -> None:
        """Refuse missing files of translations."""
        for text in filter(None, (self.kind.corpora, self.kind.contrast)):
            for corpus in parallel_corpora(text):
                for side in filter(None, (corpus.source, corpus.target)):
                    list_files(side, "parallel corpus")

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing STS sets."""
        if experiment.selection.by == "stsb":
            resolve_crosslingual_sts(experiment.selection.data_root, "stsb", "dev")

    def sketch(self, experiment: "Experiment") -> ParallelData:
        """Translations that are not there."""
        texts = TextTable("placeholder")
        pairs = Examples({"source": texts, "target": texts}, AllRows())
        store = Store(texts, experiment.placeholder_teacher)
        return ParallelData(pairs, store)

    def measured(self, context: "Preparation") -> dict[str, list[str]]:
        """STS between languages, and Tatoeba."""
        root = context.experiment.selection.data_root
        texts = list(crosslingual_texts(root)) if root else []
        return {"crosslingual": texts} if texts else {}

    def read(self, context: "Preparation") -> "ParallelParts":
        """Read the pairs."""
        kind = self.kind
        data = read_parallel_data(
            context.workspace,
            kind.corpora,
            contrast=kind.contrast,
            limit=kind.count,
            held_out=kind.held_out,
            schema=kind.schema("parallel"),
            refresh=context.refresh,
            barrier=context.barrier,
        )
        languages = dict.fromkeys(corpus.language for corpus in parallel_corpora(kind.corpora))
        context.facts |= {"corpus": kind.corpora, "languages": ",".join(languages)}
        if data.contrast is not None:
            context.facts |= {
                "contrast_corpus": kind.contrast,
                "contrast_pairs": context.row_count(data.contrast),
            }
        return data

    def measures(self, context: "Preparation") -> Iterator[Measure]:
        """Translation accuracy, and STS between languages where the data root has it."""
        data = context.once(self.read)
        return translation_measures(context.experiment.selection, data.dev, data.test)

    def prepare(self, context: "Preparation") -> ParallelData:
        """Name the teacher's vectors of the sources, which also serve as sentences."""
        data = context.once(self.read)
        store = context.store(data.train.columns["source"])
        context.data[Sentences.key] = SentenceData(store, rows=context.rows(store.texts))
        return ParallelData(data.train, store, data.contrast)


def parallel_corpora(text: str, limit: int | None = None, schema: Schema = PARALLEL) -> list[ParallelCorpus]:
    """Parse a list of parallel corpora, separated by commas.

    Args:
        text: ``de=pairs.tsv`` (two columns), ``de=folder`` (``*.en`` beside ``*.de``), ``de=folder:eng``
            (another source language), or ``de=hf:name:config``, one or more.
        limit: Pairs per corpus; None takes all.
        schema: The columns of corpora in one file.

    Raises:
        BadInput: A corpus comes without a language.
    """
    corpora = []
    for part in filter(None, text.split(",")):
        language, equals, source = part.strip().partition("=")
        require(
            bool(language and equals and source),
            "--parallel must be LANGUAGE=CORPUS, several separated by commas",
            given=part,
            remedy="Such as --parallel de=de.tsv,fr=fr.tsv.gz",
        )
        folder, colon, other = source.rpartition(":")
        if hub_name(source) is None and colon and Path(folder).is_dir():
            corpora.append(moses_pair(folder, other, language, limit=limit or None))
        elif Path(source).is_dir():
            corpora.append(moses_pair(source, "en", language, limit=limit or None))
        else:
            corpora.append(ParallelCorpus(source, language=language, limit=limit or None, schema=schema))
    require(bool(corpora), "--parallel must name at least one corpus", given=text)
    rule = "columns, header and delimiter are for corpora in one file, not for two aligned files"
    aligned = replace(PARALLEL, language=schema.language)
    require(schema == aligned or any(not each.target for each in corpora), rule, given=text)
    return [replace(each, schema=aligned) if each.target else each for each in corpora]


@dataclass(frozen=True)
class ParallelParts:
    """Parallel text, split; `contrast` is None unless the contrastive stage has corpora of its own."""

    train: Examples
    dev: Examples
    test: Examples
    contrast: Examples | None = None


def read_parallel_data(
    workspace: "Workspace",
    text: str,
    *,
    limit: int | None,
    held_out: int,
    contrast: str = "",
    schema: Schema = PARALLEL,
    refresh: bool = False,
    barrier: Barrier | None = None,
) -> ParallelParts:
    """Read training, dev and test pairs; they are read again when a file has changed.

    All corpora are split together, so that no stage trains on a held-out pair. A pair that several corpora
    have belongs to the first of them, those of the contrastive stage before the others. The barrier also gets
    the pairs that are held out.
    """
    first = parallel_corpora(text, limit, schema)
    last = parallel_corpora(contrast, limit, schema) if contrast else []
    corpora = list(dict.fromkeys([*last, *first]))
    paths = [path for corpus in corpora for path in (corpus.source, corpus.target) if path]
    files = [file for path in paths for file in list_files(path).files]
    signature = {"version": VERSION, "corpora": corpora, "files": files, "held_out": held_out}
    note = note_path(workspace, "parallel", signature)

    def read() -> tuple[Examples, ...]:
        return tuple(split_parallel(workspace, write_parallel(workspace, corpora), held_out))

    whole, dev, test = read_once(workspace, note, read, refresh=refresh)
    barrier = barrier or Barrier(workspace)
    barrier.declare("translation", chain(_texts_of(workspace, dev), _texts_of(workspace, test)))
    train = barrier.without(whole, "pairs")
    own, other = train, None
    if last:
        own, other = (
            pairs_of_corpora(workspace, train, [corpora.index(corpus) for corpus in part], label)
            for part, label in ((first, "parallel-train"), (last, "parallel-contrast"))
        )
    say_split("pairs", [count_rows(workspace, part) for part in (own, dev, test)])
    return ParallelParts(own, dev, test, other)


def _texts_of(workspace: "Workspace", pairs: Examples) -> Iterator[str]:
    """Both sides of pairs."""
    rows = open_rows(workspace, pairs)
    for side, table in pairs.columns.items():
        yield from open_texts(workspace, table)[rows[side]]


def crosslingual_texts(root: str) -> Iterator[str]:
    """The sentences of STS between languages and of Tatoeba that a data root has."""
    for layout, split in (("stsb", "dev"), ("stsb", "test"), ("sts2017", "test"), ("extended", "test")):
        if crosslingual_sets(root, layout, split):
            yield from CrossLingualSTS(resolve_crosslingual_sts(root, layout, split)).row_of
    for bitext in find_bitexts(root).values():
        yield from chain.from_iterable(bitext.read())


def translation_measures(selection: "Selection", dev: Examples, test: Examples) -> Iterator[Measure]:
    """Yield translation accuracy, and STS between languages where the data root has it."""
    final = spec(Translations, examples=test, split="test")
    yield Measure("translation", ACCURACY, spec(Translations, examples=dev), final)
    if selection.data_root or selection.by == "stsb":
        stsb = resolve_crosslingual_sts(selection.data_root, "stsb", "dev")
        mean = "cross_avg" if len(stsb.pairs) > 1 else stsb.pairs[0]
        figure = f"xsts_{mean}_spearman_cosine_x100"
        final_data = resolve_crosslingual_sts(selection.data_root, "sts2017", "test")
        on_dev, on_test = (spec(CrossLingualSTS, data=data) for data in (stsb, final_data))
        yield Measure("stsb", figure, on_dev, on_test)
