"""Parallel text: sentences with their translations."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.experiments.data_kind import DataKind
from stillhouse.experiments.kinds.sentences import Sentences, summary_of_sentences
from stillhouse.plan.data import AllRows, Examples, Store, TextTable, sample
from stillhouse.plan.setting import ParallelData, SentenceData

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.corpora.reading.parallel import Parallel as ParallelCorpus
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation

VERSION = 1
ACCURACY = "translation_mean_accuracy"


@dataclass(frozen=True)
class Parallel(DataKind[ParallelData]):
    """Sentences with their translations, instead of a corpus.

    Attributes:
        corpora: ``LANGUAGE=CORPUS``, several separated by commas: a file of two tab-separated columns, a
            folder with ``*.en`` beside ``*.LANGUAGE``, or ``hf:``.
        count: Pairs per language; 0 takes all.
        held_out: Pairs held out to measure translation accuracy, for dev and for test each.
    """

    key = "parallel"
    title = "sentences with their translations"
    remedy = "Give them with --parallel, such as --parallel de=pairs.tsv."
    is_source = True
    counts_as = "sentences"
    provides = (Sentences,)
    corpora: str = ""
    count: int = 0
    held_out: int = 1000

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.count >= 0, "parallel.count >= 0", count=self.count)
        require(self.held_out > 0, "parallel.held_out > 0", held_out=self.held_out)

    def selects(self) -> tuple[str, ...]:
        """By STS-B between languages; by translation accuracy unless something is named."""
        return ("stsb",)

    def agree(self, experiment: "Experiment") -> None:
        """Labels and word vectors do not go with it."""
        others = [kind.key for kind in experiment.kinds if kind is not self]
        require(
            not others,
            "parallel text must come without other kinds of data",
            parallel=self.corpora,
            others=others,
        )

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing STS sets."""
        from stillhouse.evaluation.crosslingual_sts import resolve_crosslingual_sts

        if experiment.selection.by == "stsb":
            resolve_crosslingual_sts(experiment.selection.data_root, "stsb", "dev")

    def sketch(self, experiment: "Experiment") -> ParallelData:
        """Translations that are not there."""
        texts = TextTable("placeholder")
        pairs = Examples({"source": texts, "target": texts}, AllRows())
        store = Store(texts, experiment.placeholder_teacher)
        return ParallelData(pairs, store)

    def prepare(self, context: "Preparation") -> ParallelData:
        """Read the pairs; the teacher embeds the sources, which also serve as sentences."""
        train, dev, test = read_parallel_data(
            context.workspace,
            self.corpora,
            limit=self.count,
            held_out=self.held_out,
            refresh=context.refresh,
        )
        store = context.trained_on(train.columns["source"])
        self._measure(context, dev, test)
        context.provide(Sentences, SentenceData(store, rows=context.rows(store.texts)))
        context.facts |= {"corpus": self.corpora, "store": store.fingerprint}
        return ParallelData(train, store)

    @staticmethod
    def share(value: ParallelData, fraction: float) -> ParallelData:
        """A share of the pairs; the teacher's vectors stay whole."""
        return ParallelData(sample(value.examples, fraction), value.store)

    def complete(self, value: ParallelData, context: "Preparation") -> ParallelData:
        """Note how many sources and pairs are trained on."""
        sources = context.data[Sentences.key].rows
        context.facts |= {"sentences": sources, "pairs": context.row_count(value.examples)}
        return value

    def _measure(self, context: "Preparation", dev: Examples, test: Examples) -> None:
        """Register translation accuracy, and STS between languages where the data root has it."""
        from stillhouse.evaluation.crosslingual_sts import CrossLingualSTS, resolve_crosslingual_sts
        from stillhouse.evaluation.translation import Translations

        context.measure(
            "translation",
            ACCURACY,
            dev=lambda: spec(Translations, examples=dev),
            test=spec(Translations, examples=test, split="test"),
        )
        selection = context.experiment.selection
        if selection.data_root or selection.by == "stsb":
            stsb = resolve_crosslingual_sts(selection.data_root, "stsb", "dev")
            mean = "cross_avg" if len(stsb.pairs) > 1 else stsb.pairs[0]
            context.measure(
                "stsb",
                f"xsts_{mean}_spearman_cosine_x100",
                dev=lambda: spec(CrossLingualSTS, data=stsb),
                test=spec(
                    CrossLingualSTS, data=resolve_crosslingual_sts(selection.data_root, "sts2017", "test")
                ),
            )

    def summary(self, facts: dict[str, Any]) -> str:
        """How many sources of which corpora the teacher has embedded."""
        return summary_of_sentences(facts)


def parallel_corpora(text: str, limit: int = 0) -> "list[ParallelCorpus]":
    """Parse a list of parallel corpora, separated by commas.

    Args:
        text: ``de=pairs.tsv`` (two columns), ``de=folder`` (``*.en`` beside ``*.de``), ``de=folder:eng``
            (another source language), or ``de=hf:name:config``, one or more.
        limit: Pairs per corpus; 0 takes all.

    Raises:
        BadInput: A corpus comes without a language.
    """
    from stillhouse.corpora.reading.corpus import hub_name
    from stillhouse.corpora.reading.parallel import Parallel as ParallelCorpus
    from stillhouse.corpora.reading.parallel import moses_pair

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
            corpora.append(ParallelCorpus(source, language=language, limit=limit or None))
    require(bool(corpora), "--parallel must name at least one corpus", given=text)
    return corpora


def read_parallel_data(
    workspace: "Workspace", text: str, *, limit: int, held_out: int, refresh: bool = False
) -> tuple[Examples, Examples, Examples]:
    """Read training, dev and test pairs; they are read again when a file has changed."""
    from stillhouse.core.artifacts import locked, read_json, write_json
    from stillhouse.corpora.reading.corpus import hub_name, list_files
    from stillhouse.corpora.reading.ingest import describe_examples, note_path, restore_examples
    from stillhouse.corpora.reading.translations import split_parallel, write_parallel

    corpora = parallel_corpora(text, limit)
    local = [
        path for corpus in corpora for path in (corpus.source, corpus.target) if path and not hub_name(path)
    ]
    files = [file for path in local for file in list_files(path)[1]]
    signature = {"version": VERSION, "corpora": corpora, "files": files, "held_out": held_out}
    note = note_path(workspace, "parallel", signature)
    with locked(note.with_suffix(".lock")):
        if note.exists() and not refresh:
            known = [restore_examples(workspace, part) for part in read_json(note)["parts"]]
            if all(known):
                return known[0], known[1], known[2]  # type: ignore[return-value]
        train, dev, test = split_parallel(workspace, write_parallel(workspace, corpora), held_out)
        write_json(note, {"parts": [describe_examples(part) for part in (train, dev, test)]})
        return train, dev, test
