"""Two processes with one thread each against one process with one thread, at the same global batch.

Both run the real loop on the same examples; two processes form a gloo group. The losses must agree. What
the machine itself gives is measured as well: two such processes without a group, at half the batch.
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from harness import Row, arguments, at_least, finish, ratio, spread
from stages import Marks, logged_losses, make_stage, opened
from torch.multiprocessing.spawn import spawn

from stillhouse.core.distributed import end_rank
from stillhouse.core.identity import spec
from stillhouse.objectives.information_bottleneck import InformationBottleneck
from stillhouse.training.fit import CONTROL_EVERY, fit
from stillhouse.values.stage import Stage

SAME = 2e-2
"""Relative: a rank groups its part of a batch otherwise, and bfloat16 is rounded at other places."""


def worker(rank: int, workers: int, stage: Stage, folder: str) -> None:
    """A rank, from its start to its end; the first notes the seconds of a step."""
    torch.set_num_threads(1)
    store = f"file://{folder}/group"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=workers)
    marks = Marks()
    fit(stage, opened(stage), Path(folder) / "stage", stop_requested=marks)
    # Alone it is asked after every step, in a group after every tenth; the same steps are counted.
    moments = marks.moments[CONTROL_EVERY - 1 :: CONTROL_EVERY] if workers == 1 else marks.moments
    if rank == 0:
        # The first steps fetch the process's memory; it is not given back.
        counted = moments[1:]
        seconds = (counted[-1] - counted[0]) / (len(counted) - 1) / CONTROL_EVERY
        (Path(folder) / "seconds").write_text(str(seconds))
    dist.barrier()
    end_rank()


def measured(workers: int, stage: Stage) -> tuple[float, list[float]]:
    """Seconds a step, and the losses that were logged."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(worker, args=(workers, stage, folder), nprocs=workers)  # type: ignore[no-untyped-call]
        losses = logged_losses(Path(folder) / "stage")
        seconds = float((Path(folder) / "seconds").read_text())
    return seconds, losses


def alone(process: int, stage: Stage, folder: str) -> None:
    """One of several processes that know nothing of each other."""
    own = Path(folder) / str(process)
    own.mkdir()
    worker(0, 1, stage, str(own))


def apart_seconds(stage: Stage) -> float:
    """Seconds a step of two processes with one thread each that share nothing but the machine."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(alone, args=(stage, folder), nprocs=2)  # type: ignore[no-untyped-call]
        return max(float(file.read_text()) for file in Path(folder).glob("*/seconds"))


def main() -> int:
    """One and two in turn."""
    options = arguments(__doc__).parse_args()
    batch = 16 if options.quick else 128
    steps = 3 * CONTROL_EVERY + 1
    stage = make_stage(spec(InformationBottleneck), quick=options.quick, batch=batch, steps=steps)
    opened(stage)
    half = dataclasses.replace(stage, batch_size=batch // 2, budget=steps * batch // 2)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    limit = apart = 0.0
    for _ in range(1 if options.quick else min(2, options.repeats)):
        losses = {}
        for workers, found in seconds.items():
            taken, losses[workers] = measured(workers, stage)
            found.append(taken)
        limit = limit or seconds[1][-1] / apart_seconds(half)
        assert len(losses[1]) == len(losses[2]) > 0, "both log"
        apart = max(abs(two / one - 1) for one, two in zip(losses[1], losses[2], strict=True))
        assert apart <= SAME, (apart, losses)
    steps_a_second = {workers: [1 / value for value in found] for workers, found in seconds.items()}
    return finish(
        [
            Row(
                f"DDP, two workers with one thread each, IBKD, global batch {batch}",
                "one worker with one thread",
                **at_least(ratio(seconds[1], seconds[2]), 1.8),
                ours=spread(steps_a_second[2], "steps/s"),
                peer=spread(steps_a_second[1], "steps/s"),
                note=f"the losses agree to {100 * apart:.2f} %; two processes that share nothing, each with "
                f"half of the batch, reach {limit:.2f}× on this machine",
            )
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
