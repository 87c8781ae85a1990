"""A search collection: queries, passages and judgements that steer (dev) and are opened once (test)."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.core.roles import ASYMMETRIC
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.data_kind import DataKind
from stillhouse.values.data import Collection, TextTable

if TYPE_CHECKING:
    from stillhouse.evaluation.pool import Pool
    from stillhouse.experiments.experiment import Experiment

METRICS = ("ndcg@10", "mrr@10")
SEARCH = "search"
UNITS = ("paragraph", "document")
SYNTHETIC = "synthetic"
SIZES = ("dev_queries", "dev_passages", "test_queries", "test_passages")
_DIVISION = ("dev", "test", "test_share", "drop_own_ids")


@dataclass(frozen=True)
class SearchData:
    """The prepared collections.

    Attributes:
        dev: All dev queries and passages.
        test: The locked test queries and passages.
        pool: The sampled passages that dev queries search; None where they search all.
        name: Prefix of the figures' names.
        held_out: Queries and judged passages of a collection of one's own, or the texts that synthetic
            queries come from; None takes all queries and passages.
    """

    dev: Collection
    test: Collection
    pool: "Pool | None" = None
    name: str = field(default="docsearch", metadata={"identity": "unless_default"})
    held_out: TextTable | None = field(default=None, metadata={"identity": "unless_default"})


@dataclass(frozen=True)
class SearchCollection(DataKind[SearchData]):
    """Queries with relevant passages: one's own, those of the corpus ``pydocs``, or synthetic ones.

    Attributes:
        path: Folder of a collection of one's own, as BEIR, TREC or MS MARCO lay it out. Its queries and
            judged passages are kept out of training. Empty takes the queries of ``pydocs``, where that is the
            corpus.
        dev: Judgements that steer: a split such as ``dev`` (``qrels/dev.tsv``), a file of judgements in the
            folder, or another folder.
        test: Judgements that are opened once, at the end. The same as ``dev``, or the only file that there
            is, divides the queries.
        test_share: Share of the queries that test, where one file of judgements is divided.
        drop_own_ids: Whether no query finds a passage with its own id, unless the pair is judged; otherwise
            it does not find one that also has its text.
        metric: What selects: ``ndcg@10`` or ``mrr@10``; empty takes ndcg@10, and mrr@10 for ``pydocs``.
        synthetic: Makes queries from a corpus without any: a held-out sentence, to find the rest of its
            ``paragraph`` (up to five sentences) or ``document``; empty makes none.
        seed: Seed for dividing queries, and for choosing synthetic ones.
        dev_queries: Queries of the dev split of ``pydocs``, or synthetic ones.
        dev_passages: Passages of the dev split of ``pydocs``, or of synthetic queries.
        dev_pool: Random passages of a pool that dev queries search, along with relevant ones and those near
            to a query by the teacher and by TF-IDF; 0 searches all dev passages.
        test_queries: Queries of the locked test split of ``pydocs``, or synthetic ones.
        test_passages: Passages of the locked test split of ``pydocs``, or of synthetic queries.
    """

    key = "collection"
    title = "queries with relevant passages"
    remedy = "Give a folder with --dev-collection, or take the corpus pydocs."
    selects = (SEARCH, ASYMMETRIC)
    read_by = "stillhouse.experiments.search_queries:SearchReader"
    path: str = ""
    dev: str = "dev"
    test: str = "test"
    test_share: float = 0.5
    drop_own_ids: bool = False
    metric: str = ""
    synthetic: str = ""
    seed: int = 0
    dev_queries: int = 250
    dev_passages: int = 800
    dev_pool: int = 0
    test_queries: int = 600
    test_passages: int = 2000

    def __post_init__(self) -> None:
        """Check the ranges, and that the fields go together."""
        check_types(self, "collection")
        require(self.metric in ("", *METRICS), f"collection.metric in {METRICS}", metric=self.metric)
        require(0 < self.test_share < 1, "0 < collection.test_share < 1", test_share=self.test_share)
        require(self.synthetic in ("", *UNITS), f"collection.synthetic in {UNITS}", synthetic=self.synthetic)
        require(
            not (self.path and self.synthetic),
            "a collection must be one's own or synthetic, not both",
            path=self.path,
            synthetic=self.synthetic,
        )
        self._refuse_others(SIZES if self.path else _DIVISION)
        require(self.dev_queries > 0, "collection.dev_queries > 0", dev_queries=self.dev_queries)
        require(self.dev_passages > 0, "collection.dev_passages > 0", dev_passages=self.dev_passages)
        most = self.dev_pool + 1 if self.path else self.dev_passages
        require(
            0 <= self.dev_pool < most,
            "0 <= dev_pool < dev_passages",
            dev_pool=self.dev_pool,
            dev_passages=self.dev_passages,
        )

    def _refuse_others(self, names: tuple[str, ...]) -> None:
        """Refuse fields that mean nothing here."""
        changed = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name in names and getattr(self, each.name) != each.default
        }
        rule = (
            "a folder's own queries and passages must be taken whole"
            if self.path
            else "these fields must go with a folder of one's own (collection.path)"
        )
        remedy = "Leave these fields out; collection.dev_pool samples passages." if self.path else ""
        require(not changed, rule, remedy=remedy, **changed)

    @property
    def name(self) -> str:
        """Prefix of the figures' names."""
        return SYNTHETIC if self.synthetic else "collection" if self.path else "docsearch"

    def agree(self, experiment: "Experiment") -> None:
        """A collection goes with sentences, and only ``pydocs`` brings its own."""
        require(
            not (self.synthetic and getattr(experiment.source, "sources", None)),
            "synthetic queries must be made from a single corpus, not from several sources",
            synthetic=self.synthetic,
            remedy="Give queries of your own (collection.path), or one corpus.",
        )
        if self.path or self.synthetic:
            require(
                experiment.source.key == "sentences",
                "a collection must go with sentences as the text to distil on",
                source=experiment.source.key,
            )
        if self.path:
            return
        require(
            experiment.uses_pydocs != bool(self.synthetic),
            "synthetic queries must be made from a corpus of one's own; pydocs has queries"
            if self.synthetic
            else "a collection must go with the corpus pydocs, whose queries it samples, or have a folder",
            source=experiment.source.key,
            remedy=""
            if self.synthetic
            else "Give a folder with collection.path (--dev-collection), make queries with "
            "collection.synthetic=paragraph, or leave the fields of `collection` out.",
        )
