"""From ``--dev-pool`` to a sampled dev collection, and its calibration against the whole."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import say, warn
from stillhouse.core.types import Encoder
from stillhouse.experiments.experiment import Experiment
from stillhouse.plan.data import Collection, Store, TextTable

if TYPE_CHECKING:
    from stillhouse.evaluation.pool import Pool


def dev_pool(
    wanted: Experiment, collection: Collection | None, store: Callable[[TextTable], Store]
) -> "Pool | None":
    """The pool that an experiment asks for; the teacher has still to embed its two stores."""
    from stillhouse.evaluation.pool import Pool

    if not wanted.dev_pool:
        return None
    assert collection is not None, "an experiment with a pool has dev passages"
    return Pool(collection, store(collection.queries), store(collection.passages), wanted.dev_pool)


def pooled_dev(workspace: Workspace, pool: "Pool") -> Collection:
    """The sampled collection; says what it holds when it is made."""
    from stillhouse.evaluation.pool import build_pool

    known = workspace.finished(pool)
    sampled = build_pool(workspace, pool)
    if not known:
        made = read_manifest(workspace.path(pool))
        held = f"{made['passages']:,} of {made['of']:,} passages, {made['positives']:,} relevant"
        near = f"{made['teacher']:,} near by the teacher, {made['tfidf']:,} by TF-IDF"
        say(f"  dev pool: {held}, {near}, {made['random']:,} random; `stillhouse evaluate` calibrates it")
        if made["passages"] == made["of"]:
            warn("The dev pool is the whole collection: raise --dev-passages, or do without --dev-pool.")
    return sampled


def calibrated(
    pool: "Pool | None", encoder: Encoder, model: str, workspace: Workspace
) -> dict[str, dict[str, float]]:
    """A model's figures on the whole collection beside those on the pool, shown and kept beside the pool."""
    from stillhouse.evaluation.pool import calibrate
    from stillhouse.training.walk import identity_of

    if pool is None:
        return {}
    found = calibrate(workspace, pool, encoder, identity_of(model, workspace))
    say("  calibration of the dev pool:")
    for figure, each in found.items():
        say(f"  {figure:<36} {each['full']:.4f} whole, {each['pool']:.4f} pool, ratio {each['ratio']:.3f}")
    return found
