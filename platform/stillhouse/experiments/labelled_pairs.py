"""Labelled pairs and scored ones as they are read, and their hard negatives, named before they are mined."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.corpora.reading.labelled import read_labelled, read_scored
from stillhouse.corpora.reading.sources import list_files
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.indexes import check_index
from stillhouse.experiments.data_kind import Reader
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.scores import Scores
from stillhouse.teachers.cross_encoder import published_cross_encoder
from stillhouse.values.data import AllRows, Examples, Mined, Store, TableStore, TextTable
from stillhouse.values.mining import Mining
from stillhouse.values.setting import PairData, ScoreData

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation


class PairReader(Reader[Pairs, PairData]):
    """The reader of labelled pairs."""

    def check_files(self) -> None:
        """Refuse missing files."""
        if self.kind.path:
            list_files(self.kind.path, "file of pairs")

    def sketch(self, experiment: "Experiment") -> PairData:
        """Pairs that are not there."""
        texts, teacher = TextTable("placeholder"), experiment.placeholder_teacher
        negatives = {"negatives": texts} if self.kind.number_mined else {}
        pairs = Examples({"query": texts, "passage": texts, **negatives}, AllRows())
        return PairData(pairs, dict.fromkeys(pairs.columns, Store(texts, teacher)))

    def prepare(self, context: "Preparation") -> PairData | None:
        """Read the pairs, and name their hard negatives and the teacher's vectors."""
        if not (self.kind.path or self.kind.present(context.experiment)):
            return None
        pairs = context.barrier.without(self.read(context, self.kind.number_given), "pairs")
        examples = with_negatives(pairs, self.kind.mining, self.kind.number_mined, context.store)
        stores = {name: context.store(table, examples.role(name)) for name, table in examples.columns.items()}
        return PairData(examples, stores)

    def read(self, context: "Preparation", negatives: int) -> Examples:
        """The pairs as they come, with so many of the hard negatives that they come with."""
        if not self.kind.path:
            pairs: Examples = context.pydocs.pairs
            return pairs
        return read_labelled(
            context.workspace,
            self.kind.path,
            negatives=negatives,
            limit=self.kind.count,
            refresh=context.refresh,
            schema=self.kind.schema("pairs"),
        )


class ScoreReader(Reader[Scores, ScoreData]):
    """The reader of a reranker's scores."""

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing files, and a cross-encoder that gives no single score."""
        if self.kind.path:
            list_files(self.kind.path, "file of scores")
        published_cross_encoder(self.kind.cross_encoder)

    def sketch(self, experiment: "Experiment") -> ScoreData:
        """Scores that are not there."""
        return ScoreData(bool(self.kind.path), published_cross_encoder(self.kind.cross_encoder))

    def prepare(self, context: "Preparation") -> ScoreData:
        """Read the files, or resolve the cross-encoder, which scores the pairs before a student trains."""
        published = published_cross_encoder(self.kind.cross_encoder)
        if published is not None:
            context.facts |= {"reranker": published.name}
        if self.kind.path:
            read = read_scored(
                context.workspace,
                self.kind.path,
                negatives=self.kind.negatives,
                limit=self.kind.count,
                refresh=context.refresh,
                schema=self.kind.schema("scores"),
            )
            examples = context.barrier.without(read, "pairs")
            context.facts |= {"reranker": f"the scores of {self.kind.path}"}
            context.data[Pairs.key] = PairData(examples, {})
        return ScoreData(bool(self.kind.path), published)


def with_negatives(
    pairs: Examples, mining: Mining, count: int, store: Callable[[TextTable, str], TableStore]
) -> Examples:
    """Add hard negatives to pairs, which are still to be mined where they do not come with the pairs.

    ``store`` names the teacher's vectors of a table of texts of a role.

    Raises:
        BadInput: FAISS as it is installed lacks the index of the rule.
    """
    if count == 0 or "negatives" in pairs.columns:
        return pairs
    if mining.index != "exact":
        check_index(parse_index(mining.index))
    queries, passages = store(pairs.columns["query"], QUERY), store(pairs.columns["passage"], DOCUMENT)
    return Examples(
        columns={**pairs.columns, "negatives": pairs.columns["passage"]},
        origin=Mined(pairs, queries, passages, count, mining),
        label="mined",
        values=pairs.values,
    )
