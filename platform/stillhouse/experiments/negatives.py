"""Hard negatives of an experiment's pairs: planned, and mined here or on the cluster."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress
from stillhouse.core.errors import mistake_in
from stillhouse.core.types import IntArray
from stillhouse.experiments.experiment import Experiment
from stillhouse.plan.data import Examples, Mined, Store, TextTable

if TYPE_CHECKING:
    from stillhouse.examples.mining import Miner
    from stillhouse.experiments.preparation import Embedding


def with_negatives(
    wanted: Experiment, pairs: Examples | None, store: Callable[[TextTable], Store]
) -> Examples | None:
    """The pairs with hard negatives, which are still to be mined; as they are where none is wanted.

    Raises:
        BadInput: An index is wanted that FAISS here does not have.
    """
    if pairs is None or wanted.negatives == 0 or "negatives" in pairs.columns:
        return pairs
    if wanted.mine_index != "exact":
        from stillhouse.evaluation.search.indexes import check_index, parse_index

        check_index(parse_index(wanted.mine_index))
    queries, passages = store(pairs.columns["query"]), store(pairs.columns["passage"])
    return Examples(
        columns={**pairs.columns, "negatives": pairs.columns["passage"]},
        origin=Mined(pairs, queries, passages, negatives=wanted.negatives, **wanted.mining_rule()),
        label="mined",
    )


def mine_negatives(workspace: Workspace, examples: Examples, embedding: "Embedding") -> None:
    """Mine, if nobody has yet; parts of the pairs are Ray tasks where the teacher runs on Ray.

    An index is built and asked in this process, with all its threads.

    Args:
        workspace: Where the pairs and both stores are.
        examples: Examples whose origin is `Mined`.
        embedding: Where the teacher runs.

    Raises:
        BadInput: No pair has enough negatives.
    """
    from stillhouse.examples.mining import build_mined

    assert isinstance(examples.origin, Mined), "only mined examples are mined"
    here = embedding.local or examples.origin.index != "exact"
    build_mined(
        workspace,
        examples,
        device=embedding.device if embedding.local else "cpu",
        progress=Progress("mining", "pairs"),
        spread=None if here else lambda miner: partial(_on_ray, miner, embedding),
    )


def _on_ray(miner: "Miner", embedding: "Embedding", starts: list[int]) -> Iterator[tuple[int, IntArray]]:
    """The parts as they are finished, each a task of as many threads as a teacher actor has."""
    import ray

    on_gpu = embedding.device.startswith("cuda")
    task = ray.remote(num_cpus=embedding.threads, num_gpus=int(on_gpu), max_retries=3)(_part)
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


def _part(miner: "Miner", start: int, device: str, threads: int) -> tuple[int, IntArray]:
    import torch

    torch.set_num_threads(threads)
    return start, miner.part(start, device)
