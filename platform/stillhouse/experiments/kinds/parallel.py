"""Parallel text: sentences with their translations."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.columns import Columns
from stillhouse.experiments.data_kind import DataKind, check_count
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.values.setting import ParallelData

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment


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
    selects = ("stsb",)
    read_by = "stillhouse.experiments.parallel_text:ParallelReader"
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

    def agree(self, experiment: "Experiment") -> None:
        """Labels and word vectors do not go with it."""
        others = [kind.key for kind in experiment.kinds if kind is not self]
        require(
            not others,
            "parallel text must come without other kinds of data",
            parallel=self.corpora,
            others=others,
        )
