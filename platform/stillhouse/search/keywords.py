"""Keywords of the Python interface, which are flags of the commands too: declared and documented once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict


class Place(TypedDict, total=False):
    """Workspace and device of a call.

    Attributes:
        root: The workspace's folder; None takes ``$STILLHOUSE_ROOT``, else ``./runs``.
        remote: Address of the remote that keeps the workspace for all nodes; None takes
            ``$STILLHOUSE_REMOTE``, and an empty one has none.
        cache_gb: Gigabytes that this node keeps of the remote; None takes ``$STILLHOUSE_CACHE_GB``.
        device: ``auto`` (default), ``cpu``, ``cuda`` or ``mps``.
    """

    root: Path | str | None
    remote: str | None
    cache_gb: float | None
    device: str


class Resources(Place, total=False):
    """Resources of a training, and its workspace and device (`Place`).

    Attributes:
        address: Address of a Ray cluster (the job's, else a local one).
        workers: Training processes per run (1).
        cpus_per_worker: CPUs of each (1, but all of them for one training in one process).
        gpus_per_worker: GPUs of each (1 where there are GPUs).
        actors: Teacher actors (what fits).
        wait_for_nodes: Seconds to wait for nodes with room (900 with an autoscaler, else 20).
        refresh: Read the corpus again.
        verbose: Show the output of the libraries.
    """

    address: str | None
    workers: int
    cpus_per_worker: float | None
    gpus_per_worker: float | None
    actors: int
    wait_for_nodes: float | None
    refresh: bool
    verbose: bool


class Search(Resources, total=False):
    """Options of a sweep's search, and its resources (`Resources`).

    Attributes:
        space: Experiment file, with a search space or for the method's own.
        section: Part of its space: ``space`` (the grid) or ``continuous``; empty takes the grid, or the
            ranges where the file has no grid or the sampler needs ranges.
        scale: A scale of the experiment file, such as ``small``; empty takes the full size.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for in the file; empty takes the environment's.
        like: Sweep of the workspace whose experiment is taken, and without a method its search, too.
        name: Name of the sweep (the method's).
        trials: Trials in all, of which more later extends (8, none for a grid).
        baseline_trials: Trials of the baseline's search (as many as the method's); 0 leaves it out.
        sampler: Name of the sampler, a file of `stillhouse.search.samplers` (``tpe``).
        objectives: ``quality``, or ``quality`` and ``size``, or ``quality`` and ``latency``.
        scheduler: Rule that stops weak trials early, a file of `stillhouse.search.schedulers` (``asha``);
            ``none`` stops no trial.
        full: Trials that are never stopped early (1).
        concurrency: Trials at once (what fits).
        register: Name in the MLflow model registry (stillhouse- and the sweep's).
        register_anyway: Register a student even if it is worse than the baseline.
    """

    space: Path | str | None
    section: str
    scale: str
    data_root: Path | str
    like: str
    name: str
    trials: int | None
    baseline_trials: int | None
    sampler: str
    objectives: Sequence[str]
    scheduler: str
    full: int
    concurrency: int
    register: str
    register_anyway: bool


def refuse_unknown(given: Mapping[str, Any], declared: Any) -> None:
    """Refuse keywords that a call does not have, as Python does.

    Raises:
        TypeError: One of them is not declared.
    """
    for name in given:
        if name not in declared.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}")
