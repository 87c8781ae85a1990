"""A stage trained by two Ray Train workers, against a bare `TorchTrainer` with two workers and an empty loop.

What is measured is the start and the end: the stage has four steps of eight sentences with a tiny student,
and what it reads is built. Ours is what a nested trial calls, checkpoints, manifest and messages included;
every run is a stage of its own. The bare trainer imports torch and makes the process group, and no more.

    python benchmarks/nested.py
"""

import dataclasses
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clusters import own_ray
from harness import Row, arguments, finish, in_turn, ratio, spread
from models import TINY, tiny_teacher
from sentences import numbered

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.identity import spec
from stillhouse.corpora.tables import write_texts
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods import mse
from stillhouse.students.transformer import TransformerStudent
from stillhouse.training.local import prepare
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Model, Store
from stillhouse.values.setting import SentenceData, Setting
from stillhouse.values.stage import DevSuite, Stage

WORKERS, BATCH, STEPS, ROWS = 2, 8, 4, 64


def stage(workspace: Workspace, teacher: Model, seed: int) -> Stage:
    """A stage whose inputs are built; another seed is another stage."""
    table = write_texts(workspace, "sentences", numbered(ROWS))
    store = Store(table, teacher, max_length=32)
    setting = Setting(
        teacher=teacher,
        student=spec(TransformerStudent, base=teacher, layers=(0,)),
        data={Sentences.key: SentenceData(store, rows=ROWS)},
        teacher_dim=TINY,
        dev=DevSuite((), "none"),
        distil_budget=BATCH * STEPS,
        max_length=32,
        seed=seed,
    )
    made = dataclasses.replace(mse.plan(mse.HyperParameters(batch_size=BATCH), setting), dev=None)
    prepare(made, workspace, device="cpu", threads=1)
    return made


def bare(folder: Path) -> None:
    """The empty loop."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        _nothing,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(name=f"bare-{time.time_ns()}", storage_path=str(folder)),
    ).fit()


def _nothing(config: Any = None) -> None:
    """Run the work of one worker."""


def main() -> int:
    """The bare trainer and ours in turn, in one cluster."""
    parser = arguments(__doc__)
    parser.set_defaults(repeats=2)
    options = parser.parse_args()
    repeats, warmups = (1, 0) if options.quick else (options.repeats, 1)
    where = Where(device="cpu", threads=1, workers=WORKERS)
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        workspace, teacher = Workspace(folder / "runs"), tiny_teacher(folder)
        stages = [stage(workspace, teacher, seed) for seed in range(repeats + warmups)]
        left = iter(stages)
        # As a sweep with several workers does: with the dashboard.
        with own_ray(dashboard=True):
            seconds = in_turn(
                {"bare": lambda: bare(folder), "ours": lambda: run(next(left), workspace, where=where)},
                repeats,
                warmups,
            )
        manifests = [read_manifest(workspace.path(each)) for each in stages]
        shutil.rmtree(workspace.root)
    assert all((report["workers"], report["steps"]) == (WORKERS, STEPS) for report in manifests)
    times = 1 / ratio(seconds["bare"], seconds["ours"])
    return finish(
        [
            Row(
                f"a stage of {STEPS} steps by {WORKERS} Ray Train workers",
                f"a bare `TorchTrainer`, {WORKERS} workers, an empty loop",
                target="≤ 1.1×",
                measured=f"{times:.2f}×",
                met=times <= 1.1,
                ours=spread(seconds["ours"]),
                peer=spread(seconds["bare"]),
                note=f"steps {manifests[-1]['seconds']:.2f} s of it; each of {repeats} a stage of its own",
            )
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
