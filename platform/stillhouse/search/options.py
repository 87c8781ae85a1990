"""The options of a sweep."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import check_name
from stillhouse.core.errors import require
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.space import Space
from stillhouse.values.data import Teacher

QUALITY, SIZE, LATENCY = "quality", "size", "latency"
STUDY_DATABASE = "STILLHOUSE_STUDY_DATABASE"
"""Environment variable with the address of a database in which a team sees its studies."""
CHANGES_COST = ("layers", "projection", "encoder", "units", "hidden")


@dataclass(frozen=True)
class SweepOptions:
    """A sweep's space and place: a `Search` whose files have been read.

    Attributes:
        name: Name of its folder in the workspace and of its experiment in MLflow.
        method: Name of the method.
        space: The search space, checked against the method.
        experiment: Settings that all trials share.
        root: Folder of the workspace; a node's own where there is a remote.
        preset: Preset of the hyper-parameters that the space does not name.
        need: Resources of one trial.
        embedding: Where the teacher runs.
        teacher: The experiment's teacher, where it has been found already; None finds it.
        trials: See `Search`, as for the others.
    """

    name: str
    method: str
    space: Space
    experiment: Experiment
    root: Path
    preset: str = "paper"
    trials: int = 8
    baseline_trials: int | None = None
    sampler: str = "tpe"
    objectives: tuple[str, ...] = (QUALITY,)
    scheduler: str = "asha"
    full: int = 1
    concurrency: int = 0
    need: Need = dataclasses.field(default_factory=Need)
    embedding: Embedding = dataclasses.field(default_factory=Embedding)
    device: str = "cpu"
    address: str | None = None
    register: str = ""
    register_anyway: bool = False
    refresh: bool = False
    verbose: bool = False
    teacher: Teacher | None = None
    remote: str = ""
    wait_for_nodes: float | None = None

    def __post_init__(self) -> None:
        """Check what concerns several options at once."""
        check_name(self.name, "a sweep")
        if self.register:
            check_name(self.register, "a registered model")
        require(self.trials >= 1, "trials >= 1", trials=self.trials)
        require(
            (self.baseline_trials or 0) >= 0, "baseline_trials >= 0", baseline_trials=self.baseline_trials
        )
        require(self.full >= 0, "full >= 0", full=self.full)
        require(self.concurrency >= 0, "concurrency >= 0", concurrency=self.concurrency)
        require((self.wait_for_nodes or 0) >= 0, "--wait-for-nodes >= 0", wait_for_nodes=self.wait_for_nodes)
        load_scheduler(self.scheduler)
        known = ((QUALITY,), (QUALITY, SIZE), (QUALITY, LATENCY))
        require(
            self.objectives in known,
            "--objectives must be quality, or quality,size, or quality,latency",
            objectives=",".join(self.objectives),
        )
        if len(self.objectives) > 1:
            varied = [name for name in CHANGES_COST if name in self.space.domains]
            require(
                bool(varied),
                f"with a second objective the space must vary {' or '.join(CHANGES_COST)}",
                space=sorted(self.space.domains),
                remedy="All students of this space cost the same.",
            )

    def on(self, device: str) -> "SweepOptions":
        """The same options with the device settled: the teacher's, the students', the GPUs of a trial."""
        embedding = dataclasses.replace(self.embedding, device=device)
        return dataclasses.replace(self, device=device, need=self.need.on(device), embedding=embedding)
