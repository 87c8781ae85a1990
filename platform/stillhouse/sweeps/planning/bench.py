"""The measurement: how fast this machine embeds, trains and encodes, with its models and texts.

As many processes as will run at once do the same at the same time, since cores share their memory and, often,
their arithmetic. Each loads the teacher, embeds a sample, and takes some steps of every stage in the real
training loop, on real tokens and invented vectors, in a temporary folder: nothing of it is kept.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import numpy as np
import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.machine import describe_machine, variables_set
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import Encoder
from stillhouse.corpora.tables import open_rows, open_values, sample_of
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.teachers.runtimes import start
from stillhouse.teachers.weights import on_this_machine
from stillhouse.training.estimate import Pace, course_of, pace_of
from stillhouse.training.fit import fit
from stillhouse.training.in_memory import MemoryTokens, RandomVectors
from stillhouse.training.metrics_log import NAME, read_lines
from stillhouse.training.module import build_student
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.table import Reader, TrainingTable, live_reader, student_reader
from stillhouse.training.watch import encoder_of
from stillhouse.values.data import Examples, FewerNegatives, Mined, Model, Recorded, Scored, Store
from stillhouse.values.stage import TEXTS_TOGETHER, Stage

SECONDS = 30.0
"""Time for measuring, in which processes start and models are loaded too."""
_TEXTS, _LEAST_STEPS, _STEPS = 512, 2, 19
_TOGETHER = 128
"""Texts of a step that is measured, at most."""
_LATE_S = 300.0
"""Seconds after which a process no longer waits for the others."""
_barrier: Any = None


@dataclass(frozen=True)
class Sample:
    """What is measured.

    Attributes:
        workspace: Holds the texts.
        store: A store of the teacher, on texts to distil on; None if no model is run.
        stages: The stages.
        teacher_dim: E.
        device: Device of teacher and students.
        embedding_threads: Threads of a process that embeds.
        threads: Threads of a process that trains.
        seconds: Time for all of it.
    """

    workspace: Workspace
    store: Store | None
    stages: tuple[Stage, ...]
    teacher_dim: int
    device: str
    embedding_threads: int
    threads: int
    seconds: float = SECONDS


@dataclass(frozen=True)
class Measured:
    """How fast this machine is with as many processes at once as will run.

    Attributes:
        embedding: Tokens per second of one teacher process; 0 where none was measured.
        load_s: Seconds until a process has loaded the libraries and the teacher.
        encoding: Tokens per second that a student encodes in the process that trains it.
        training: Pace of each stage by its label, for one process.
        source: What was measured, where and when.
    """

    embedding: float = 0.0
    load_s: float = 0.0
    encoding: float = 0.0
    training: Mapping[str, Pace] = field(default_factory=dict)
    source: str = ""


def calibrated(sample: Sample, *, teachers: int, trainers: int, logs: Path) -> Measured:
    """Measure this machine.

    Args:
        sample: What is measured.
        teachers: Processes that embed at once.
        trainers: Processes that train at once.
        logs: Folder for what the libraries print.

    Raises:
        BadInput: A model cannot be loaded, or a stage cannot be measured before it has been prepared.
    """
    count = max(teachers, trainers, 1)
    logs.mkdir(parents=True, exist_ok=True)
    fresh = multiprocessing.get_context("spawn")
    barrier = fresh.Barrier(count)
    variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(sample.threads))
    with variables_set({**variables, "TOKENIZERS_PARALLELISM": "false"}):
        pool = ProcessPoolExecutor(count, fresh, _ready, (barrier, time.time(), str(logs)))
        with pool:
            each = [pool.submit(_measured, sample, at < teachers, at < trainers) for at in range(count)]
            try:
                found = [one.result() for one in each]
            except (BrokenProcessPool, BrokenBarrierError):
                barrier.abort()  # The others wait for the one that is gone.
                raise BadInput(
                    "the measurement must have memory for as many models as run at once, but a process of it "
                    "ended. Close other programs, or give --actors and --concurrency."
                ) from None
    return _joined(found, sample)


def _joined(found: Sequence[Mapping[str, Any]], sample: Sample) -> Measured:
    """The means of what the processes measured."""

    def mean(name: str) -> float:
        values = [one[name] for one in found if one.get(name)]
        return statistics.fmean(values) if values else 0.0

    training = {}
    for stage in sample.stages:
        paces = [one["training"][stage.label] for one in found if stage.label in one.get("training", {})]
        training[stage.label] = Pace(*(statistics.fmean(column) for column in zip(*paces, strict=True)))
    machine = describe_machine(sample.threads)
    source = (
        f"measured now, in {len(found)} processes at once on {machine['cores']} cores of {machine['cpu']}, "
        f"load {machine['load']}"
    )
    load_s = mean("start_s") + mean("load_s")
    return Measured(mean("embedding"), load_s, mean("encoding"), training, source)


def _ready(barrier: Any, began: float, logs: str) -> None:
    """Runs first in every process: it has loaded the libraries when it comes here."""
    global _barrier, _start_s
    _barrier, _start_s = barrier, time.time() - began
    with open(Path(logs) / "calibration.log", "ab") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)


_start_s = 0.0


def _measured(sample: Sample, embeds: bool, trains: bool) -> dict[str, Any]:
    """Measure in this process, each part at the same time as the others."""
    found: dict[str, Any] = {"start_s": _start_s}
    share = sample.seconds / (2 + len(sample.stages)) / 1.5
    _barrier.wait(_LATE_S)
    if embeds and sample.store is not None:
        torch.set_num_threads(sample.embedding_threads)
        found |= _embedding(sample, sample.store, share)
    _barrier.wait(_LATE_S)
    if trains:
        torch.set_num_threads(sample.threads)
        found["training"] = {stage.label: _training(sample, stage, share) for stage in sample.stages}
    if trains and sample.stages:
        found["encoding"] = _encoding(sample, sample.stages[-1], share / 2)
    return found


def _embedding(sample: Sample, store: Store, seconds: float) -> dict[str, float]:
    """Tokens per second from texts to vectors, and the seconds until the teacher is ready."""
    began = time.perf_counter()
    assert isinstance(store.teacher, Model), "others are not run"
    running = start(store, sample.workspace, sample.device, sample.embedding_threads)
    tokenizer = FastTokenizer(Path(on_this_machine(store.teacher).path), store.max_length)
    forward = running.forward(store, tokenizer.pad_id, sample.device)
    _, texts = sample_of(sample.workspace, store.texts, 4 * _TEXTS)
    texts = [store.prompt + text for text in texts]
    forward(*tokenizer(texts[:8]))
    load_s = time.perf_counter() - began
    return {"load_s": load_s, "embedding": _rate(lambda: _pass(tokenizer, forward, texts), seconds)}


def _pass(tokenizer: FastTokenizer, forward: Any, texts: list[str]) -> int:
    ids, offsets = tokenizer(texts)
    forward(ids, offsets)
    return len(ids)


def _rate(run: Any, seconds: float) -> float:
    """Amount per second of something that is done until the time is over, once at least."""
    began, amount = time.perf_counter(), 0
    while True:
        amount += run()
        passed = time.perf_counter() - began
        if passed >= seconds:
            return float(amount / passed)


def _encoding(sample: Sample, stage: Stage, seconds: float) -> float:
    """Tokens per second that the student of a stage encodes, as its evaluations do."""
    student = build_student(stage)
    encoder = encoder_of(student, stage.max_length, stage.autocast, sample.device, stage.prompts)
    texts = sample_of(sample.workspace, next(iter(stage.examples.columns.values())), _TEXTS)[1]
    tokenizer = FastTokenizer(Path(tokenizer_of(stage).path), stage.max_length)
    tokens = len(tokenizer(texts)[0])
    return _encoded(encoder, texts, tokens, seconds)


def _encoded(encoder: Any, texts: Sequence[str], tokens: int, seconds: float) -> float:
    """Tokens per second of an encoder; 0 for a model that only scores pairs."""
    if not isinstance(encoder, Encoder):
        return 0.0

    def once() -> int:
        encoder.encode(texts)
        return tokens

    once()
    return _rate(once, seconds)


def _training(sample: Sample, stage: Stage, seconds: float) -> Pace:
    """Take some steps of a stage in the real loop."""
    batch = _batch_of(sample, stage)
    short = replace(
        stage,
        batch_size=batch,
        budget=_STEPS * batch,
        dev=None,
        evaluate_every=0,
        patience=0,
        soup=0,
        start_from=None,
        keeps_objective=False,
        shard_window=0,
    )
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as folder:
        began = time.time()
        table = _stand_in(sample, stage)
        log = Path(folder) / NAME

        def over() -> bool:
            lines = list(read_lines(log))
            return bool(lines) and lines[-1]["step"] > _LEAST_STEPS and time.time() - began > seconds

        try:
            fit(short, table, Path(folder), device=sample.device, stop_requested=over, checkpoint_seconds=1e9)
        except Interrupted:
            pass
        pace = pace_of(course_of(read_lines(log), began=began))
    assert pace is not None, "it took some steps"
    return pace


def _batch_of(sample: Sample, stage: Stage) -> int:
    """The batch, or a smaller one where it has more than `_TOGETHER` texts: an example takes as long."""
    shapes, _ = _shapes(sample.workspace, stage.examples, 1)
    texts = sum(shape[0] if shape else 1 for shape in shapes.values())
    least = TEXTS_TOGETHER * stage.accumulate
    return min(stage.batch_size, max(least, _TOGETHER * stage.accumulate // texts // least * least))


def _stand_in(sample: Sample, stage: Stage) -> TrainingTable:
    """The training table of a stage, on sampled texts, with the shapes that it will have."""
    count = max(_TEXTS, 2 * stage.batch_size)
    shapes, values = _shapes(sample.workspace, stage.examples, count)
    random = np.random.default_rng(0)
    rows = {column: random.integers(count, size=(count, *shape)) for column, shape in shapes.items()}
    student = student_reader(stage, tokenizer_of(stage))
    live = live_reader(stage, student)
    return TrainingTable(
        rows,
        _columns(sample, stage, student, count),
        {column: RandomVectors(count, sample.teacher_dim) for column in stage.stores},
        values,
        _columns(sample, stage, live, count) if live is not None else None,
    )


def _columns(sample: Sample, stage: Stage, reader: Reader, count: int) -> dict[str, MemoryTokens]:
    found = {}
    for column, table in reader.tables(stage.examples).items():
        prompt = table.prompts[0][1] if table.prompts else table.prompt
        texts = sample_of(sample.workspace, table.texts, count)[1]
        texts = [prompt + texts[at % len(texts)] for at in range(count)]
        found[column] = MemoryTokens(FastTokenizer(Path(table.tokenizer.path), table.max_length), texts)
    return found


def _shapes(
    workspace: Workspace, examples: Examples, count: int
) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """Shapes of the ids of every column, and values of some rows.

    Raises:
        BadInput: They are known only once the teacher has recorded them.
    """
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(examples.columns, ())
    values: dict[str, Any] = {}
    for part in examples.sources():
        origin = part.origin
        if isinstance(origin, Mined | FewerNegatives):
            shapes["negatives"] = (origin.negatives,)
        elif isinstance(origin, Recorded | Scored) and not workspace.finished(part):
            raise BadInput(
                f"the examples {part.label} must be recorded before their stage can be measured: they come "
                "with what a teacher says of them. Train once."
            )
        elif workspace.finished(part):
            given = {name: ids.shape[1:] for name, ids in open_rows(workspace, part).items()}
            shapes |= {name: shape for name, shape in given.items() if name in shapes}
            known = open_values(workspace, part)
            values |= {
                name: np.resize(value[:count], (count, *value.shape[1:])) for name, value in known.items()
            }
    return shapes, values
