"""Labelled (query, passage) pairs, with hard negatives that come with them or are mined."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import mistake_in, require
from stillhouse.experiments.data_kind import DataKind
from stillhouse.plan.data import AllRows, Examples, Mined, Store, TextTable, sample
from stillhouse.plan.mining import Mining
from stillhouse.plan.setting import PairData

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.core.types import IntArray
    from stillhouse.examples.mining import Miner
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Embedding, Preparation


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
        return experiment.budget.finetune > 0 and bool(self.path or (experiment.uses_pydocs and self.count))

    def sketch(self, experiment: "Experiment") -> PairData:
        """Pairs that are not there."""
        texts, teacher = TextTable("placeholder"), experiment.placeholder_teacher
        pairs = Examples({"query": texts, "passage": texts}, AllRows())
        return PairData(pairs, dict.fromkeys(pairs.columns, Store(texts, teacher)))

    def prepare(self, context: "Preparation") -> PairData | None:
        """Read the pairs, and plan what the teacher embeds and mines for them."""
        pairs = self.read(context.workspace, context) if context.training else None
        if pairs is None:
            return None
        examples = self.with_negatives(pairs, context.store)
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

    def with_negatives(self, pairs: Examples, store: Callable[[TextTable], Store]) -> Examples:
        """The pairs with hard negatives, which are still to be mined where they do not come with the pairs.

        Raises:
            BadInput: FAISS as it is installed lacks the index of the rule.
        """
        if self.negatives == 0 or "negatives" in pairs.columns:
            return pairs
        if self.mining.index != "exact":
            from stillhouse.evaluation.search.indexes import check_index, parse_index

            check_index(parse_index(self.mining.index))
        queries, passages = store(pairs.columns["query"]), store(pairs.columns["passage"])
        return Examples(
            columns={**pairs.columns, "negatives": pairs.columns["passage"]},
            origin=Mined(pairs, queries, passages, self.negatives, self.mining),
            label="mined",
        )


def mine_negatives(workspace: "Workspace", examples: Examples, embedding: "Embedding") -> None:
    """Mine hard negatives unless they exist; parts of the pairs are Ray tasks where the teacher runs on Ray.

    An index is built and searched in this process, with all its threads.

    Args:
        workspace: Where the pairs and both stores are.
        examples: Examples whose origin is `Mined`.
        embedding: Where the teacher runs.

    Raises:
        BadInput: No pair has enough negatives.
    """
    from stillhouse.core.console import Progress
    from stillhouse.examples.mining import build_mined

    assert isinstance(examples.origin, Mined), "only mined examples are mined"
    here = embedding.local or examples.origin.mining.index != "exact"
    build_mined(
        workspace,
        examples,
        device=embedding.device if embedding.local else "cpu",
        progress=Progress("mining", "pairs"),
        spread=None if here else lambda miner: partial(_on_ray, miner, embedding),
    )


def _on_ray(miner: "Miner", embedding: "Embedding", starts: list[int]) -> "Iterator[tuple[int, IntArray]]":
    """Yield the parts as they finish, each a task with as many threads as a teacher actor has."""
    import ray

    on_gpu = embedding.device.startswith("cuda")
    task: Any = ray.remote(num_cpus=embedding.threads, num_gpus=int(on_gpu), max_retries=3)(_part)
    shared = ray.put(miner)
    waiting = [task.remote(shared, start, embedding.device, embedding.threads) for start in starts]
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(ready[0])
    except Exception as error:
        raise mistake_in(error) or error from None
    finally:
        for left in waiting:
            ray.cancel(left)


def _part(miner: "Miner", start: int, device: str, threads: int) -> "tuple[int, IntArray]":
    import torch

    torch.set_num_threads(threads)
    return start, miner.part(start, device)
