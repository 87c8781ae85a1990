"""Mining the hard negatives of labelled pairs, in this process or as Ray tasks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from stillhouse.core.console import Progress
from stillhouse.core.errors import mistake_in
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.evaluation.search.indexes import check_index, parse_index
from stillhouse.training.mining import build_mined
from stillhouse.values.data import Examples, Mined, TableStore, TextTable
from stillhouse.values.mining import Mining

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.core.types import IntArray
    from stillhouse.experiments.embedding import Embedding
    from stillhouse.training.mining import Miner


def with_negatives(
    pairs: Examples, mining: Mining, count: int, store: Callable[[TextTable, str], TableStore]
) -> Examples:
    """Add hard negatives to pairs, which are still to be mined where they do not come with the pairs.

    Args:
        pairs: The pairs.
        mining: The rule of mining.
        count: Number of negatives per pair.
        store: Names the teacher's vectors of a table of texts of a role.

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
