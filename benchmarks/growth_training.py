"""How a training step grows: with the batch, for every objective, and with the memory bank.

    python benchmarks/growth_training.py [--figures] [--quick]

Whole steps of the three-layer student, and the objectives alone on made vectors, which shows from which batch
on a term that is quadratic in it (HSIC, the contrasts) costs as much as the student. ``--figures`` draws both
into ``docs/figures``.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from harness import ROOT, machine, median
from stages import make_stage, module_of, opened, stepping
from torch import nn

from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.crd import CRD
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.objectives.contrasts import ContrastiveDistillation, RepresentationContrast
from stillhouse.objectives.information_bottleneck import InformationBottleneck
from stillhouse.objectives.matching import Regression
from stillhouse.training.prefetch import batches

OBJECTIVES: dict[str, Spec[Any]] = {
    "MSE": spec(Regression),
    "CKD": spec(ContrastiveDistillation),
    "IBKD": spec(InformationBottleneck),
    "CRD": spec(RepresentationContrast, crd=spec(CRD, items=100_000)),
}
BANKED = ("CKD", "CRD")
DIM = 384
Times = dict[str, dict[int, float]]


def step_seconds(objective: Spec[Any], batch: int, quick: bool) -> float:
    """A whole step, the median of the last few."""
    stage = make_stage(objective, quick=quick, batch=batch, steps=2 if quick else 5)
    training = opened(stage)
    given = list(batches(stage, training, "cpu", 0))
    return median(list(stepping(stage, module_of(stage, training), given))[-3:])


def objective_seconds(objective: Spec[Any], rows: int) -> float:
    """Forward and backward of an objective alone, on made vectors."""
    module: nn.Module = objective.build(student_dim=DIM, teacher_dim=DIM)
    said_BD, input_B1H = (torch.randn(shape, requires_grad=True) for shape in ((rows, DIM), (rows, 1, DIM)))
    encoding = Encoding(said_BD, (input_B1H, input_B1H), torch.ones(rows, 1))
    batch = Batch({}, {"text": torch.arange(rows)}, {})
    teacher = {"text": Encoding(torch.randn(rows, DIM))}
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        terms: Mapping[str, torch.Tensor] = module({"text": encoding}, teacher, batch)
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])


def grown(
    names: tuple[str, ...],
    sizes: list[int],
    seconds: Callable[[Spec[Any], int], float],
    what: str,
    rounds: int = 1,
) -> Times:
    """Seconds by objective and size: medians of rounds through all of them, report as a table."""
    taken: dict[tuple[str, int], list[float]] = {(name, size): [] for size in sizes for name in names}
    for _ in range(rounds):
        for (name, size), found in taken.items():
            found.append(seconds(OBJECTIVES[name], size))
    by_size = {name: {size: median(taken[name, size]) for size in sizes} for name in names}
    print(f"\n| {what} | {' | '.join(f'{name}, ms' for name in names)} |\n|{'---|' * (len(names) + 1)}")
    for size in sizes:
        cells = [f"{1000 * by_size[name][size]:.1f}" for name in names]
        print(f"| {size:,} | {' | '.join(cells)} |", flush=True)
    return by_size


def draw(file: str, parts: dict[str, Times], across: str) -> None:
    """Milliseconds against a size, both logarithmic; the second part is dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for style, (part, times) in zip(("o-", "s--"), parts.items(), strict=False):
        for colour, (name, by_size) in enumerate(times.items()):
            values = [1000 * value for value in by_size.values()]
            axes.plot(list(by_size), values, style, color=f"C{colour}", label=f"{name}, {part}", ms=4)
    axes.set(xlabel=across, ylabel="ms", yscale="log")
    # A logarithm has no place for no bank at all.
    sizes = {size for times in parts.values() for by_size in times.values() for size in by_size}
    least = min(sizes - {0})
    scale: dict[str, Any] = {"value": "symlog", "linthresh": least} if 0 in sizes else {"value": "log"}
    axes.set_xscale(base=2, **scale)
    axes.set_xlim(left=-0.2 * least if 0 in sizes else 0.9 * least)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", fontsize=8, ncols=4)
    path = ROOT / "docs" / "figures" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"written: {path.relative_to(ROOT)}")


def main() -> int:
    """The tables of both figures, and the figures where they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", action="store_true", help="draw into docs/figures (needs matplotlib)")
    parser.add_argument("--only", choices=("batch", "bank"), help="one of the two figures")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast")
    options = parser.parse_args()
    quick = options.quick
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    exponents = (5, 6) if quick else (5, 6, 7, 8, 9, 10)
    batch_sizes, rows = (
        [2**power for power in exponents],
        [2**power for power in range(5, 8 if quick else 14)],
    )
    banks = [0, 1024] if quick else [0, 4096, 16_384, 65_536, 131_072]
    anchored = 32 if quick else 128

    def with_bank(objective: Spec[Any], size: int) -> float:
        return step_seconds(
            objective.replace(bank=spec(MemoryBank, size=size) if size else None), anchored, quick
        )

    # The first process to compute fetches its memory from the system, which is not what is compared.
    step_seconds(OBJECTIVES["MSE"], batch_sizes[-1], quick)
    drawn: dict[str, tuple[dict[str, Times], str]] = {}
    if options.only != "bank":
        by_batch = {
            "whole step": grown(
                tuple(OBJECTIVES),
                batch_sizes,
                lambda made, size: step_seconds(made, size, quick),
                "batch, whole step",
            ),
            "objective alone": grown(tuple(OBJECTIVES), rows, objective_seconds, "batch, objective alone"),
        }
        drawn["training_batch.png"] = by_batch, "batch"
    if options.only != "batch":
        what = f"whole step, batch {anchored}"
        banked = grown(BANKED, banks, with_bank, f"memory bank, {what}", 1 if quick else 3)
        drawn["training_bank.png"] = {what: banked}, "slots of the memory bank"
    for file, (parts, across) in drawn.items() if options.figures else ():
        draw(file, parts, across)
    return 0


if __name__ == "__main__":
    sys.exit(main())
