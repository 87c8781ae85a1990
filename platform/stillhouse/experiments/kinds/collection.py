"""A search collection: queries, passages and judgements that steer (dev) and are opened once (test)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.experiments.data_kind import DataKind
from stillhouse.plan.data import Collection, TextTable

if TYPE_CHECKING:
    from stillhouse.evaluation.pool import Pool
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation


@dataclass(frozen=True)
class SearchData:
    """The prepared collections.

    Attributes:
        dev: All dev queries and passages.
        test: The locked test queries and passages.
        pool: The sampled passages that dev queries search; None where they search all.
    """

    dev: Collection
    test: Collection
    pool: "Pool | None" = None


@dataclass(frozen=True)
class SearchCollection(DataKind[SearchData]):
    """Queries with relevant passages, from the corpus ``pydocs``.

    Attributes:
        dev_queries: Queries of the dev split.
        dev_passages: Passages of the dev split.
        dev_pool: Random passages of a pool that dev queries search, along with relevant ones and those near
            to a query by the teacher and by TF-IDF; 0 searches all dev passages.
        test_queries: Queries of the locked test split.
        test_passages: Passages of the locked test split.
    """

    key = "collection"
    title = "queries with relevant passages"
    remedy = "Take the corpus pydocs."
    dev_queries: int = 250
    dev_passages: int = 800
    dev_pool: int = 0
    test_queries: int = 600
    test_passages: int = 2000

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.dev_queries > 0, "collection.dev_queries > 0", dev_queries=self.dev_queries)
        require(self.dev_passages > 0, "collection.dev_passages > 0", dev_passages=self.dev_passages)
        require(
            0 <= self.dev_pool < self.dev_passages,
            "0 <= dev_pool < dev_passages",
            dev_pool=self.dev_pool,
            dev_passages=self.dev_passages,
        )

    def agree(self, experiment: "Experiment") -> None:
        """Only ``pydocs`` has such queries."""
        require(
            experiment.uses_pydocs,
            "a collection must go with the corpus pydocs, whose queries it samples",
            source=experiment.source.key,
            remedy="Leave the fields of `collection` out.",
        )

    def selects(self) -> tuple[str, ...]:
        """By the reciprocal rank of the relevant passage."""
        return ("search",)

    def sketch(self, experiment: "Experiment") -> SearchData:
        """Collections that are not there."""
        texts = TextTable("placeholder")
        nothing = Collection(texts, texts, "placeholder")
        return SearchData(nothing, nothing)

    def prepare(self, context: "Preparation") -> SearchData:
        """Read the collections; a pool is sampled once the teacher has embedded the dev passages."""
        from stillhouse.experiments.search_pool import measure_search, pool_of

        docs = context.pydocs()
        pool = pool_of(docs.dev, self.dev_pool, context.embedded)
        measure_search(context, docs.dev, docs.test, pool)
        return SearchData(docs.dev, docs.test, pool)
