"""Parallel text: sentences with their translations."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.columns import Columns
from stillhouse.experiments.data_kind import DataKind, Measure, check_count
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.values.data import AllRows, Examples, Store, TextTable
from stillhouse.values.setting import ParallelData, SentenceData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.parallel_text import ParallelParts
    from stillhouse.experiments.preparation import Preparation


@dataclass(frozen=True)
class Parallel(Columns, DataKind[ParallelData]):
    """Sentences with their translations, instead of a corpus.

    Attributes:
        corpora: ``LANGUAGE=CORPUS``, several separated by commas: a file of two tab-separated columns, a
            folder with ``*.en`` beside ``*.LANGUAGE``, or ``hf:``.
        contrast: Corpora of the contrastive stage, in the same form, from among ``corpora`` or others; empty
            takes ``corpora``.
        count: Pairs per language.
        held_out: Pairs held out to measure translation accuracy, for dev and for test each.
    """

    key = "parallel"
    title = "sentences with their translations"
    remedy = "Give them with --parallel, such as --parallel de=pairs.tsv."
    is_source = True
    counts_as = "sentences"
    provides = (Sentences,)
    corpora: str = ""
    contrast: str = ""
    count: int | None = None
    held_out: int = 1000

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "parallel")
        check_count("parallel.count", self.count)
        self.check_columns("parallel")
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

    def check_files(self) -> None:
        """Refuse missing files of translations."""
        from stillhouse.experiments.parallel_text import check_files

        check_files(self.corpora)
        check_files(self.contrast)

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

    def measured(self, context: "Preparation") -> "Mapping[str, list[str]]":
        """STS between languages, and Tatoeba."""
        from stillhouse.experiments.parallel_text import crosslingual_texts

        root = context.experiment.selection.data_root
        texts = list(crosslingual_texts(root)) if root else []
        return {"crosslingual": texts} if texts else {}

    def read(self, context: "Preparation") -> "ParallelParts":
        """Read the pairs."""
        from stillhouse.experiments.parallel_text import parallel_corpora, read_parallel_data

        data = read_parallel_data(
            context.workspace,
            self.corpora,
            contrast=self.contrast,
            limit=self.count,
            held_out=self.held_out,
            schema=self.schema("parallel"),
            refresh=context.refresh,
            barrier=context.barrier,
        )
        languages = dict.fromkeys(corpus.language for corpus in parallel_corpora(self.corpora))
        context.facts |= {"corpus": self.corpora, "languages": ",".join(languages)}
        if data.contrast is not None:
            context.facts |= {
                "contrast_corpus": self.contrast,
                "contrast_pairs": context.row_count(data.contrast),
            }
        return data

    def measures(self, context: "Preparation") -> "Iterable[Measure]":
        """Translation accuracy, and STS between languages where the data root has it."""
        from stillhouse.experiments.parallel_text import translation_measures

        data = context.once(self.read)
        return translation_measures(context.experiment.selection, data.dev, data.test)

    def prepare(self, context: "Preparation") -> ParallelData:
        """Name the teacher's vectors of the sources, which also serve as sentences."""
        data = context.once(self.read)
        store = context.store(data.train.columns["source"])
        context.provide(Sentences, SentenceData(store, rows=context.rows(store.texts)))
        return ParallelData(data.train, store, data.contrast)
