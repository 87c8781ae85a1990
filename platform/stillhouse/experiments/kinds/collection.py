"""A search collection: queries, passages and judgements that steer (dev) and are opened once (test)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.experiments.data_kind import DataKind
from stillhouse.plan.data import Collection, Store, TextTable

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.core.types import Encoder
    from stillhouse.evaluation.pool import Pool
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation

MRR = "cosine_mrr@10"


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
        from stillhouse.evaluation.pool import NAME
        from stillhouse.evaluation.retrieval import DocSearch

        docs = context.pydocs()
        pool = self.pool_of(docs.dev, context.embedded)
        name = NAME if pool else "docsearch"
        context.measure(
            "search",
            f"{name}_{MRR}",
            dev=lambda: spec(
                DocSearch, collection=pooled_dev(context.workspace, pool) if pool else docs.dev, name=name
            ),
            test=spec(DocSearch, collection=docs.test, name="docsearch"),
        )
        return SearchData(docs.dev, docs.test, pool)

    def pool_of(self, collection: Collection, store: Callable[[TextTable], Store]) -> "Pool | None":
        """The pool to sample, whose two stores the teacher has still to embed; None where all is searched."""
        from stillhouse.evaluation.pool import Pool

        if not self.dev_pool:
            return None
        return Pool(collection, store(collection.queries), store(collection.passages), self.dev_pool)


def pooled_dev(workspace: "Workspace", pool: "Pool") -> Collection:
    """Sample the collection unless it exists; report what it holds when it is made."""
    from stillhouse.core.artifacts import read_manifest
    from stillhouse.core.console import say, warn
    from stillhouse.evaluation.pool import build_pool

    known = workspace.finished(pool)
    sampled = build_pool(workspace, pool)
    if not known:
        made = read_manifest(workspace.path(pool))
        held = f"{made['passages']:,} of {made['of']:,} passages, {made['positives']:,} relevant"
        near = f"{made['teacher']:,} near by the teacher, {made['tfidf']:,} by TF-IDF"
        say(f"  dev pool: {held}, {near}, {made['random']:,} random; `stillhouse evaluate` calibrates it")
        if made["passages"] == made["of"]:
            warn("The dev pool is the whole collection: raise dev_passages, or leave dev_pool out.")
    return sampled


def calibrated(
    pool: "Pool | None", encoder: "Encoder", model: str, workspace: "Workspace"
) -> dict[str, dict[str, float]]:
    """Measure a model on the whole collection and on the pool; the figures are printed, and kept with it."""
    from stillhouse.core.console import say
    from stillhouse.evaluation.pool import calibrate
    from stillhouse.training.walk import identity_of

    if pool is None:
        return {}
    found = calibrate(workspace, pool, encoder, identity_of(model, workspace))
    say("  calibration of the dev pool:")
    for figure, each in found.items():
        say(f"  {figure:<36} {each['full']:.4f} whole, {each['pool']:.4f} pool, ratio {each['ratio']:.3f}")
    return found
