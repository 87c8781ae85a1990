"""Shared parts of the training benchmarks: a stage on real sentences, its stored vectors, and a clock."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from harness import median
from sentences import WORKSPACE, table

from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch
from stillhouse.students.cpu.attention import optimise_for_cpu
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.embedding import resolve_compute
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.fit import fit
from stillhouse.training.local import prepare
from stillhouse.training.metrics_log import NAME
from stillhouse.training.module import StudentAndObjective, build_module
from stillhouse.training.schedule import make_optimizer
from stillhouse.training.table import TrainingTable, open_table, student_reader
from stillhouse.values.data import AllRows, Examples, Store
from stillhouse.values.stage import Optimizer, Stage

MODEL, LAYERS, MAX_LENGTH = "all-MiniLM-L6-v2", (0, 2, 4), 64
QUICK, WHOLE = 300, 8_000
"""Sentences; more steps than they last go round again."""


def make_stage(objective: Spec[Any], *, quick: bool, batch: int, steps: int, **changes: Any) -> Stage:
    """Three layers of the teacher as the student, without dropout so that losses can be compared."""
    texts, model = table(QUICK if quick else WHOLE), resolve_model(MODEL)
    student = spec(TransformerStudent, base=model, layers=LAYERS, pooling="own", normalize=None, dropout=0.0)
    defaults: dict[str, Any] = {
        "optimizer": Optimizer(1e-4),
        "autocast": resolve_compute("cpu", "auto"),
        "max_length": MAX_LENGTH,
    }
    return Stage(
        label="benchmark",
        student=student,
        objective=objective,
        examples=Examples(columns={"text": texts}, origin=AllRows()),
        stores={"text": Store(texts, model, max_length=MAX_LENGTH, dtype="float32")},
        budget=steps * batch,
        batch_size=batch,
        **{**defaults, **changes},
    )


def opened(stage: Stage) -> TrainingTable:
    """Its tokens and teacher vectors, built where they are not there yet."""
    prepare(stage, WORKSPACE, device="cpu", threads=torch.get_num_threads())
    return open_table(WORKSPACE, stage, student_reader(stage, tokenizer_of(stage)))


def module_of(stage: Stage, training: TrainingTable) -> StudentAndObjective:
    """Student and objective as the loop has them at its first step."""
    module = build_module(stage, training.teacher_dim, None).train()
    optimise_for_cpu(module, "cpu")
    return module


def stepping(stage: Stage, module: StudentAndObjective, given: list[Batch]) -> Iterator[float]:
    """Seconds of one bare step after the other."""
    optimizer = make_optimizer(module, stage.optimizer, "cpu")
    for batch in given:
        began = time.perf_counter()
        terms = module(batch)
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield time.perf_counter() - began


class Marks:
    """Moments between steps. Given to `fit` as ``asked``, which is looked at there."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def __call__(self) -> bool:
        """Note the moment; nobody asks for an end."""
        self.moments.append(time.perf_counter())
        return False

    def seconds(self, skip: int = 1) -> float:
        """A step, the mean over those after the first few."""
        counted = self.moments[skip:]
        return (counted[-1] - counted[0]) / (len(counted) - 1)


def run_loop(stage: Stage, training: TrainingTable, skip: int = 1) -> tuple[float, list[float]]:
    """The real loop from its first step: seconds a step, and the losses that it logged."""
    marks = Marks()
    with tempfile.TemporaryDirectory() as held:
        fit(stage, training, Path(held), stop_requested=marks)
        losses = logged_losses(Path(held))
    return marks.seconds(skip), losses


def logged_losses(folder: Path) -> list[float]:
    """The losses in the metrics log of a stage's folder."""
    metrics = [json.loads(line)["metrics"] for line in (folder / NAME).read_text().splitlines()]
    return [each["loss"] for each in metrics if "loss" in each]


def milliseconds(seconds: list[float]) -> list[float]:
    """For a step these read better."""
    return [1000 * value for value in seconds]


def overhead(base: list[float], more: list[float]) -> float:
    """By how many percent ``more`` is slower: the median over the pairs, which were made in turn."""
    return 100 * (median([b / a for a, b in zip(base, more, strict=True)]) - 1)
