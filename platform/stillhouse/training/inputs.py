"""One function makes what stages and suites read: `get` finds what is missing, and makes that alone."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.core.errors import mistake_in
from stillhouse.corpora.tokens import build_tokens
from stillhouse.evaluation.pool import Pool, build_pool
from stillhouse.teachers.embedding import build_stores
from stillhouse.training.hard_negatives import Miner, build_mined
from stillhouse.training.pair_scores import build_scored
from stillhouse.training.recording import build_recorded
from stillhouse.values.data import Examples, Mined, Recorded, Store, TokenTable
from stillhouse.values.graph import missing, of_kind

if TYPE_CHECKING:
    from stillhouse.core.types import IntArray


def get(
    values: Iterable[object], workspace: Workspace, *, device: str, threads: int, actors: int = 0
) -> None:
    """Make what some values name and is not there: all stores by one pool of teachers, then what reads them.

    Args:
        values: Stages, whose inputs are made, suites, stores, examples, or whatever else names such.
        workspace: Where everything is found and put.
        device: Device of the teacher.
        threads: Threads per process.
        actors: Processes of Ray that hold the teacher; 0 works in this process. The outputs of a model over
            rows take the resources of a training: with actors they are left to whoever trains.
    """
    found = missing(values, workspace.finished)
    if stores := of_kind(Store, found):
        _embed(stores, workspace, device=device, threads=threads, actors=actors)
    for each in found:
        if isinstance(each, Pool):
            build_pool(workspace, each)
        elif isinstance(each, TokenTable):
            build_tokens(workspace, each)
        elif isinstance(each, Examples) and isinstance(each.origin, Mined):
            _mine(each, each.origin, workspace, device, threads, on_ray=actors > 0)
        elif isinstance(each, Examples) and not actors:
            record(each, workspace, device=device)


def record(examples: Examples, workspace: Workspace, *, device: str) -> None:
    """Record the outputs of a model over the rows of examples, or its scores of their pairs."""
    if isinstance(examples.origin, Recorded):
        build_recorded(workspace, examples, device=device)
    else:
        build_scored(workspace, examples, device=device, progress=Progress("scoring", "queries"))


def _embed(stores: list[Store], workspace: Workspace, *, device: str, threads: int, actors: int) -> None:
    imported = all(store.teacher.imported for store in stores)
    asked = all(store.teacher.asked for store in stores)
    what = "reading the vectors of" if imported else "asking for" if asked else "starting the teacher for"
    say(f"  {what} {', '.join(dict.fromkeys(store.label for store in stores))}")
    build_stores(
        workspace,
        stores,
        actors=actors or 1,
        threads=threads,
        local=not actors,
        device=device,
        progress=Progress("importing" if imported else "embedding", "texts"),
    )


def _mine(
    examples: Examples, rule: Mined, workspace: Workspace, device: str, threads: int, *, on_ray: bool
) -> None:
    """Mine hard negatives; an index is built and searched in this process, with all its threads."""
    spread = on_ray and rule.mining.index == "exact"
    build_mined(
        workspace,
        examples,
        device="cpu" if on_ray else device,
        progress=Progress("mining", "pairs"),
        spread=(lambda miner: partial(_on_ray, miner, device, threads)) if spread else None,
    )


def _on_ray(miner: Miner, device: str, threads: int, starts: list[int]) -> "Iterator[tuple[int, IntArray]]":
    """Yield the parts as they finish, each a task with as many threads as a teacher actor has."""
    import ray

    task: Any = ray.remote(num_cpus=threads, num_gpus=int(device.startswith("cuda")), max_retries=3)(_part)
    shared = ray.put(miner)
    waiting = [task.remote(shared, start, device, threads) for start in starts]
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(ready[0])
    except Exception as error:
        raise mistake_in(error) or error from None
    finally:
        for left in waiting:
            ray.cancel(left)


def _part(miner: Miner, start: int, device: str, threads: int) -> "tuple[int, IntArray]":
    import torch

    torch.set_num_threads(threads)
    return start, miner.part(start, device)
