"""Labelled (query, passage) pairs, with hard negatives that come with them or are mined."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.experiments.columns import Columns
from stillhouse.experiments.data_kind import DataKind, check_count
from stillhouse.experiments.text_in_memory import IN_MEMORY, held_rows
from stillhouse.values.mining import Mining
from stillhouse.values.setting import PairData

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment


@dataclass(frozen=True)
class Pairs(Columns, DataKind[PairData]):
    """Labelled text to fine-tune on.

    Attributes:
        path: Labelled pairs: a file of JSON lines, CSV, TSV or Parquet, or ``hf:``, with the columns query
            and passage, and negatives or NLI labels; or MS MARCO's own folder, qrels.train.tsv or triples.
            Empty takes the pairs of ``pydocs`` where that is the
            corpus.
        count: Number of pairs; default: all of a file, 2,048 of ``pydocs``.
        negatives: Number of hard negatives per pair (K): those that come with it, otherwise mined. Where it
            is not given, a pair keeps one of those that come with it, and ``mined`` says how many are
            mined.
        mined: Number of hard negatives that are mined per pair where ``negatives`` is not given. Where
            neither is, it is the number of the method's paper (8 for ``ibkd``), otherwise 1.
        mining: By which rule negatives are mined.
        rows: Pairs in memory instead of a file: a list of tuples (query, passage, negatives one by one) or of
            mappings, a pandas DataFrame, or a ``datasets.Dataset``.
        distilled: Whether a stage before the fine-tuning reads them, so that they are needed without a budget
            for it; ``metakd`` sets it.
    """

    key = "pairs"
    title = "labelled text with the columns query, passage"
    remedy = "Give it with --labelled, and a budget with --finetune-budget; pydocs brings its own pairs."
    counts_as = "labels"
    read_by = "stillhouse.experiments.labelled_pairs:PairReader"
    path: str = ""
    count: int | None = None
    negatives: int | None = None
    mined: int | None = None
    mining: Mining = field(default_factory=Mining)
    distilled: bool = False
    rows: Any = field(default=None, metadata={IN_MEMORY: ("path",)})

    def __post_init__(self) -> None:
        """Check the ranges, and that the rule of mining leaves enough negatives."""
        check_types(self, "pairs", path="Pairs in memory are given as rows=[…].")
        if self.rows is not None:
            held = held_rows(self.rows)
            require(self.path in ("", str(held)), "pairs.rows must come without a file", path=self.path)
            object.__setattr__(self, "rows", held)
            object.__setattr__(self, "path", str(held))
        check_count("pairs.count", self.count)
        self.check_columns("pairs")
        for name in ("negatives", "mined"):
            given = getattr(self, name)
            require(given is None or given >= 0, f"pairs.{name} >= 0", **{name: given})
        self.mining.check(self.number_mined)
        if self.mining.index != "exact":
            parse_index(self.mining.index)

    @property
    def number_mined(self) -> int:
        """K of pairs that come without hard negatives."""
        return next((given for given in (self.negatives, self.mined) if given is not None), 1)

    @property
    def number_given(self) -> int:
        """K of pairs that come with hard negatives."""
        return 1 if self.negatives is None else self.negatives

    def present(self, experiment: "Experiment") -> bool:
        """Return whether a stage reads them, and there are any."""
        wanted = self.distilled or experiment.budget.finetune != 0
        return wanted and bool(self.path or experiment.uses_pydocs)
