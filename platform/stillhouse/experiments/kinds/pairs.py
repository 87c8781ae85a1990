"""Labelled (query, passage) pairs, with hard negatives that come with them or are mined."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stillhouse.core.errors import require
from stillhouse.experiments.data_kind import DataKind
from stillhouse.plan.data import AllRows, Examples, Mined, Store, TextTable, sample
from stillhouse.plan.mining import Mining
from stillhouse.plan.setting import PairData

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation


@dataclass(frozen=True)
class Pairs(DataKind[PairData]):
    """Labelled text to fine-tune on.

    Attributes:
        path: Labelled pairs: a file of JSON lines, CSV, TSV or Parquet, or ``hf:``, with the columns query
            and passage, and negatives or NLI labels; empty takes the pairs of ``pydocs`` where that is the
            corpus.
        count: Number of pairs; 0 takes none of ``pydocs``, or all of ``path``.
        negatives: Number of hard negatives per pair (K): those that come with it, otherwise mined.
        mining: By which rule negatives are mined.
    """

    key = "pairs"
    title = "labelled text with the columns query, passage"
    remedy = "Give it with --labelled, and a budget with --finetune-budget; pydocs brings its own pairs."
    counts_as = "labels"
    path: str = ""
    count: int = 2048
    negatives: int = 1
    mining: Mining = field(default_factory=Mining)

    def __post_init__(self) -> None:
        """Check the ranges, and that the rule of mining leaves enough negatives."""
        require(self.count >= 0, "pairs.count >= 0", count=self.count)
        require(self.negatives >= 0, "pairs.negatives >= 0", negatives=self.negatives)
        self.mining.check(self.negatives)
        if self.mining.index != "exact":
            from stillhouse.evaluation.search.indexes import parse_index

            parse_index(self.mining.index)

    def present(self, experiment: "Experiment") -> bool:
        """Whether there is a budget for them, and any of them."""
        return experiment.budget.finetune != 0 and bool(self.path or (experiment.uses_pydocs and self.count))

    def sketch(self, experiment: "Experiment") -> PairData:
        """Pairs that are not there."""
        texts, teacher = TextTable("placeholder"), experiment.placeholder_teacher
        pairs = Examples({"query": texts, "passage": texts}, AllRows())
        return PairData(pairs, dict.fromkeys(pairs.columns, Store(texts, teacher)))

    def prepare(self, context: "Preparation") -> PairData | None:
        """Read the pairs, and plan what the teacher embeds and mines for them."""
        from stillhouse.experiments.negatives import mine_negatives, with_negatives
        from stillhouse.experiments.search_queries import pairs_to_train_on

        pairs = self.read(context.workspace, context) if context.training else None
        if pairs is None:
            return None
        pairs = pairs_to_train_on(context, pairs)
        examples = with_negatives(pairs, self.mining, self.negatives, context.store)
        if isinstance(examples.origin, Mined):
            context.embedded(pairs.columns["query"])
            context.embedded(pairs.columns["passage"])
            context.later(lambda: mine_negatives(context.workspace, examples, context.embedding))
        stores = {name: context.store(table) for name, table in examples.columns.items()}
        return PairData(examples, stores)

    @staticmethod
    def share(value: PairData, fraction: float) -> PairData:
        """A share of the pairs; negatives are mined among all of them."""
        return PairData(sample(value.examples, fraction), value.stores)

    def complete(self, value: PairData, context: "Preparation") -> PairData:
        """Note how many pairs are trained on."""
        context.facts |= {"pairs": context.row_count(value.examples)}
        return value

    def read(self, workspace: "Workspace", context: "Preparation") -> Examples | None:
        """The pairs as they come; None where there are none."""
        if self.path:
            from stillhouse.corpora.reading.labelled import read_labelled

            return read_labelled(
                workspace, self.path, negatives=self.negatives, limit=self.count, refresh=context.refresh
            )
        experiment = context.experiment
        any_of_pydocs = self.count and experiment.budget.finetune and experiment.uses_pydocs
        return context.pydocs().pairs if any_of_pydocs else None
