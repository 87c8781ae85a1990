"""The training loop against a bare forward, backward and step on the same batches, prepared beforehand.

The two take turns step by step: the loop looks between steps at whether it is asked to stop, and there the
bare step is made. Both are given the same weights, batches and rate, and must end at the same weights.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from harness import Row, arguments, at_most, finish, median, spread
from safetensors.torch import load_file
from stages import make_stage, milliseconds, module_of, opened, overhead

from stillhouse.core.identity import spec
from stillhouse.objectives.matching import Regression
from stillhouse.training.fit import STUDENT, fit
from stillhouse.training.prefetch import batches
from stillhouse.training.schedule import make_optimizer
from stillhouse.training.table import TrainingTable
from stillhouse.values.stage import Optimizer, Stage

SKIP = 3


class InTurn:
    """Makes a bare step after each of the loop's, and times both."""

    def __init__(self, stage: Stage, training: TrainingTable) -> None:
        self.module = module_of(stage, training)
        self.optimizer = make_optimizer(self.module, stage.optimizer, "cpu")
        self.prepared = list(batches(stage, training, "cpu", 0))
        self.bare: list[float] = []
        self.loop: list[float] = []
        self._left = 0.0

    def __call__(self) -> bool:
        """Return whether to stop, as `fit` asks between steps."""
        came = time.perf_counter()
        if self._left:
            self.loop.append(came - self._left)
        began = time.perf_counter()
        self.step()
        ended = time.perf_counter()
        if self._left:
            self.bare.append(ended - began)
        self._left = time.perf_counter()
        return False

    def step(self) -> None:
        """Forward, backward, step."""
        terms = self.module(self.prepared.pop(0))
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def main() -> int:
    """Run a stage once for every repeat, and compare the weights at the end."""
    options = arguments(__doc__).parse_args()
    batch, steps = (16, 8) if options.quick else (128, 24)
    plain = Optimizer(1e-4, decay="constant", clip_norm=0.0)
    stage = make_stage(spec(Regression), quick=options.quick, batch=batch, steps=steps, optimizer=plain)
    training = opened(stage)
    loop: list[float] = []
    bare: list[float] = []
    for _ in range(1 if options.quick else min(2, options.repeats)):
        turns = InTurn(stage, training)
        with tempfile.TemporaryDirectory() as held:
            fit(stage, training, Path(held), stop_requested=turns)
            trained = load_file(Path(held) / STUDENT)
        turns.step()
        for name, value in turns.module.student.state_dict().items():
            assert torch.equal(value, trained[name]), f"{name} differs after {steps} steps"
        loop += turns.loop[SKIP:]
        bare += turns.bare[SKIP:]
    return finish(
        [
            Row(
                f"the training loop, batch {batch}: reading, padding, feeding, gradient norm, logging",
                "bare forward, backward and step on prepared batches",
                **at_most(overhead(bare, loop), 3, "%"),
                ours=spread(milliseconds(loop), "ms"),
                peer=spread(milliseconds(bare), "ms"),
                note=f"{len(loop)} steps of each in turn, the weights at the end equal bit for bit; "
                f"difference of the medians {1000 * (median(loop) - median(bare)):.1f} ms",
            )
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
