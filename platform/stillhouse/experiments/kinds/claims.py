"""Claims with candidate documents, which retrieval distillation learns to rank."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.corpora.published.fever import SPLIT_BY
from stillhouse.experiments.data_kind import DataKind
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.values.data import RankingTask

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment


@dataclass(frozen=True)
class Claims(DataKind[RankingTask]):
    """Claims of FEVER, instead of a corpus.

    Attributes:
        path: Folder of FEVER, with its claims and pages.
        candidates: Number of documents per claim that are nearest by TF-IDF (C).
        ngrams: Words in the longest term of TF-IDF: 1 takes single words, 2 also pairs of neighbours.
        split_by: What train, dev and test do not share: a ``claim``, as in the paper, so that they share
            pages; or a ``page`` too, directly or through other claims.
        unlabelled: Largest number of claims without evidence, or without all its pages, that a student learns
            from by the teacher's scores alone.
        cross_encoder: Name or path of a published cross-encoder with one label, which may teach; empty for
            none.
        dev: Largest number of claims of the dev split.
        test: Largest number of claims of the locked test split.
    """

    key = "claims"
    title = "claims with candidate documents"
    remedy = "Give --claims with a folder of FEVER."
    is_source = True
    counts_as = "sentences"
    read_by = "stillhouse.experiments.claim_rows:ClaimReader"
    path: str = ""
    candidates: int = 10
    ngrams: int = 1
    split_by: str = "claim"
    unlabelled: int = 0
    cross_encoder: str = ""
    dev: int = 250
    test: int = 600

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_types(self, "claims")
        require(bool(self.path), "--claims must name a folder", claims=self.path)
        require(self.candidates >= 2, "candidates >= 2", candidates=self.candidates)
        require(self.ngrams in (1, 2, 3), "claims.ngrams in (1, 2, 3)", ngrams=self.ngrams)
        require(self.split_by in SPLIT_BY, f"claims.split_by in {SPLIT_BY}", split_by=self.split_by)
        require(self.unlabelled >= 0, "claims.unlabelled >= 0", unlabelled=self.unlabelled)
        require(
            self.unlabelled == 0 or self.split_by == "claim",
            "claims.split_by = claim with unlabelled claims, whose pages are not known",
            split_by=self.split_by,
            unlabelled=self.unlabelled,
        )
        require(self.dev > 0, "claims.dev > 0", dev=self.dev)
        require(self.test > 0, "claims.test > 0", test=self.test)

    def brings(self) -> tuple[DataKind[Any], ...]:
        """Vectors of the words of claims and documents."""
        return (WordVectors(),)

    def agree(self, experiment: "Experiment") -> None:
        """Other labels do not go with claims, whose own measure selects."""
        others = [kind.key for kind in experiment.kinds if kind is not self and kind.key != WordVectors.key]
        require(
            not (others or experiment.selection.by),
            "claims must come without other kinds of data, and select by their DCG",
            claims=self.path,
            others=others,
            select=experiment.selection.by,
        )

        require(
            not experiment.student.prompts,
            "student.prompts must be left out with claims, whose pairs some models read in one pass",
            prompts=str(experiment.student.prompts),
        )
