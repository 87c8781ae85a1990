"""One function makes what stages and suites read: `get` finds what is missing, and makes that alone."""

from collections.abc import Iterable

from stillhouse.cluster.ray_data import ModelPool
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.corpora.tokens import build_tokens
from stillhouse.evaluation.pool import Pool, build_pool
from stillhouse.teachers.embedding import build_stores
from stillhouse.training.hard_negatives import build_mined
from stillhouse.training.pair_scores import build_scored
from stillhouse.training.recording import build_recorded
from stillhouse.values.data import Examples, Mined, Recorded, Store, TokenTable
from stillhouse.values.graph import missing, of_kind


def get(
    values: Iterable[object], workspace: Workspace, *, device: str, threads: int, actors: int = 0
) -> None:
    """Make what some values name and is not there: all stores by one pool of teachers, then what reads them.

    Args:
        values: Stages, whose inputs are made, suites, stores, examples, or whatever else names such.
        workspace: Where everything is found and put.
        device: Device of the models.
        threads: Threads per process.
        actors: Processes of Ray that hold a model, each with a device of its own; 0 works in this process.
    """
    found = missing(values, workspace.finished)
    pool = ModelPool(actors, device, threads) if actors else None
    if stores := of_kind(Store, found):
        _embed(stores, workspace, device=device, threads=threads, actors=actors)
    for each in found:
        if isinstance(each, Pool):
            build_pool(workspace, each)
        elif isinstance(each, TokenTable):
            build_tokens(workspace, each)
        elif isinstance(each, Examples):
            _build_examples(each, workspace, device, pool)


def _build_examples(examples: Examples, workspace: Workspace, device: str, pool: ModelPool | None) -> None:
    """Mine negatives, record the outputs of a model over rows, or score their pairs."""
    if isinstance(examples.origin, Mined):
        # An index is built and searched in this process, with all its threads.
        spread = pool if examples.origin.mining.index == "exact" else None
        at = "cpu" if pool else device
        build_mined(workspace, examples, device=at, pool=spread, progress=Progress("mining", "pairs"))
    elif isinstance(examples.origin, Recorded):
        build_recorded(workspace, examples, device=device, pool=pool)
    else:
        scoring = Progress("scoring", "queries")
        build_scored(workspace, examples, device=device, pool=pool, progress=scoring)


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
