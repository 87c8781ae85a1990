"""What a sweep is, and where it runs."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from stillhouse.cluster.resources import Need
from stillhouse.core.errors import require
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.preparation import Embedding
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.space import Space

QUALITY, SIZE, LATENCY = "quality", "size", "latency"
_CHANGES_COST = ("layers", "projection", "encoder", "units", "hidden")


@dataclass(frozen=True)
class SweepOptions:
    """What a sweep is, and where it runs.

    Attributes:
        name: Its folder in the workspace, and its experiment in MLflow.
        method: What is searched.
        preset: Where hyper-parameters come from that the space does not name.
        space: What is searched, checked against the method.
        experiment: What all trials share.
        root: The workspace.
        trials: How many in all.
        sampler: Name of the sampler, a file of `stillhouse.search.samplers`.
        objectives: ``quality`` alone, or with ``size`` or ``latency``.
        scheduler: Name of the early-stopping scheduler, a file of `stillhouse.search.schedulers`; ``none``
            stops no trial early.
        full: Number of trials that are never stopped early.
        at_once: Trials at once; 0 takes what fits.
        need: Resources of a trial.
        embedding: How the teacher runs.
        device: Of teacher and training; ``auto`` takes a GPU where the cluster has one, else the CPU.
        address: Of a Ray cluster.
        register: Name in the model registry; empty takes the sweep's.
        refresh: Read the corpus again.
        verbose: Show the libraries' chatter.
    """

    name: str
    method: str
    space: Space
    experiment: Experiment
    root: Path
    preset: str = "paper"
    trials: int = 8
    sampler: str = "tpe"
    objectives: tuple[str, ...] = (QUALITY,)
    scheduler: str = "asha"
    full: int = 3
    at_once: int = 0
    need: Need = dataclasses.field(default_factory=Need)
    embedding: Embedding = dataclasses.field(default_factory=Embedding)
    device: str = "cpu"
    address: str | None = None
    register: str = ""
    refresh: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        """Check what the parts cannot check for themselves."""
        require(self.trials >= 1, "trials >= 1", trials=self.trials)
        load_scheduler(self.scheduler)
        known = ((QUALITY,), (QUALITY, SIZE), (QUALITY, LATENCY))
        require(
            self.objectives in known,
            "objectives is quality, or quality,size, or quality,latency",
            objectives=",".join(self.objectives),
        )
        if len(self.objectives) > 1:
            varied = [name for name in _CHANGES_COST if name in self.space.domains]
            require(
                bool(varied),
                f"a second objective needs a space that varies {' or '.join(_CHANGES_COST)}",
                space=sorted(self.space.domains),
                remedy="Every student of this space costs the same.",
            )
