"""The pool that dev queries search: sampled among the passages, and calibrated against all of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.console import say, show, warn
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.evaluation.pool import Pool, build_pool, calibrate
from stillhouse.experiments.kinds.collection import SearchData
from stillhouse.training.models import Source
from stillhouse.values.data import Collection, TableStore, TextTable

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.core.types import Encoder


def pool_of(collection: Collection, size: int, store: Callable[[TextTable, str], TableStore]) -> Pool | None:
    """Return the pool to sample; None where all passages are searched.

    Args:
        collection: All queries and passages.
        size: Number of random passages in the pool; 0 searches all.
        store: Registers a table of texts of a role that the teacher has still to embed.
    """
    if not size:
        return None
    return Pool(collection, store(collection.queries, QUERY), store(collection.passages, DOCUMENT), size)


def pooled_dev(workspace: "Workspace", pool: "Pool") -> Collection:
    """Sample the collection unless it exists; report what it holds when it is made."""
    known = workspace.finished(pool)
    sampled = build_pool(workspace, pool)
    if not known:
        made = read_manifest(workspace.path(pool))
        held = f"{made['passages']:,} of {made['of']:,} passages, {made['positives']:,} relevant"
        near = f"{made['teacher']:,} near by the teacher, {made['tfidf']:,} by TF-IDF"
        say(f"  dev pool: {held}, {near}, {made['random']:,} random; `stillhouse evaluate` calibrates it")
        if made["passages"] == made["of"]:
            warn("The dev pool is the whole collection: take more passages, or leave dev_pool out.")
    return sampled


def calibrated(
    search: SearchData | None, encoder: "Encoder", source: Source, workspace: "Workspace"
) -> dict[str, dict[str, float]]:
    """Measure a model on the whole collection and on the pool; the figures are printed, and kept with it."""
    if search is None or search.pool is None:
        return {}
    found = calibrate(workspace, search.pool, encoder, source.identity(), prefix=search.name)
    show("  calibration of the dev pool:")
    for figure, each in found.items():
        show(f"  {figure:<36} {each['full']:.4f} whole, {each['pool']:.4f} pool, ratio {each['ratio']:.3f}")
    return found
