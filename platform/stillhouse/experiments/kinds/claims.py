"""Claims with candidate documents, which retrieval distillation learns to rank."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.core.type_casts import check_types
from stillhouse.corpora.published.fever import SPLIT_BY, SPLITS, fever_files
from stillhouse.experiments.data_kind import DataKind, Measure
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.values.data import AllRows, Examples, Model, RankingTask, TextTable
from stillhouse.values.stage import DevSuite

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation

DCG = "fever_dcg"


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

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing files, and a cross-encoder that gives no single score."""
        fever_files(self.path)
        self.published_teacher()

    def published_teacher(self) -> Model | None:
        """The cross-encoder that may teach.

        Raises:
            BadInput: If there is no such model, or it does not give a single score per pair.
        """
        from stillhouse.teachers.cross_encoder import published_cross_encoder

        return published_cross_encoder(self.cross_encoder)

    def sketch(self, experiment: "Experiment") -> RankingTask:
        """Claims that are not there."""
        texts, nothing = TextTable("placeholder"), DevSuite((), select="")
        rows = Examples({"claim": texts, "documents": texts}, AllRows())
        return RankingTask(rows, nothing, rows=1 << 40, cross_encoder=self.published_teacher())

    def read(self, context: "Preparation") -> tuple[Examples, Examples, Examples, Examples | None]:
        """Read claims and pages, and find the candidates: train, dev, test, and train with the unlabelled."""
        from stillhouse.experiments.claim_rows import ALL, read_claims
        from stillhouse.experiments.sources_read import claims_read

        parts, facts = read_claims(self, context.workspace, refresh=context.refresh)
        train, dev, test = (parts[name] for name in SPLITS)
        more = parts.get(ALL)
        claims_read(context.workspace, self.path, train, facts["data"]).say()
        published = self.published_teacher()
        context.facts |= {
            **facts,
            "sentences": facts["documents"],
            "teacher": published.name if published else "a teacher trained on the same claims",
            "store": train.fingerprint,
        }
        if more is not None:
            context.facts |= {"unlabelled_claims": context.row_count(more) - context.row_count(train)}
        rows = context.row_count(train if more is None else more)
        fraction = context.experiment.budget.share_of(self.counts_as)
        claims = max(1, round(fraction * rows))
        context.facts |= {"claims": claims, "pairs": claims * self.candidates}
        _say(context.facts)
        return train, dev, test, more

    def measures(self, context: "Preparation") -> "tuple[Measure]":
        """Ranking of the candidates."""
        from stillhouse.evaluation.claim_ranking import ClaimRanking

        _, dev, test, _ = context.once(self.read)
        on_dev, on_test = spec(ClaimRanking, examples=dev), spec(ClaimRanking, examples=test, split="test")
        return (Measure(self.key, DCG, on_dev, on_test),)

    def prepare(self, context: "Preparation") -> RankingTask:
        """The claims to learn from."""
        train, _, _, more = context.once(self.read)
        for table in train.columns.values():
            context.reads(table)
        rows, published = context.row_count(more or train), self.published_teacher()
        return RankingTask(train, context.dev, rows, cross_encoder=published, unlabelled=more)


def _say(facts: dict[str, Any]) -> None:
    """Print what was read, Table 1, and the worth of TF-IDF's own order, which every student should beat."""
    say(f"  {facts['claims']:,} claims to learn from, {facts['candidates']} candidates each")
    say(f"  claims with all relevant documents among the C nearest: {facts['coverage']}")
    order = {name: value for name, value in facts.items() if name.startswith("tfidf_dev_")}
    say("  TF-IDF: " + ", ".join(f"{name.removeprefix('tfidf_dev_')} {v:.4f}" for name, v in order.items()))
