"""The measurement: how fast this machine embeds, trains and encodes, with its models and texts.

As many processes as will run at once do the same at the same time, since cores share their memory and, often,
their arithmetic. They embed a sample, and take some steps of every stage in the real training loop, on real
tokens and invented vectors, in a temporary folder: nothing of it is kept.
"""

import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.machine import script_left_out, variables_set
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import Encoder
from stillhouse.corpora.tables import sample_of
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.teachers.runtimes import start
from stillhouse.teachers.weights import on_this_machine
from stillhouse.training.estimate import Pace, course_of, kind_of, pace_of
from stillhouse.training.fit import fit
from stillhouse.training.in_memory import stand_in
from stillhouse.training.metrics_log import NAME, read_lines
from stillhouse.training.module import build_student
from stillhouse.training.rank_sync import Interrupted
from stillhouse.training.watch import encoder_of
from stillhouse.values.data import Store
from stillhouse.values.stage import TEXTS_TOGETHER, Stage

SECONDS = 7.0
"""Time for measuring the teacher, and a student."""
_TEXTS, _LEAST_STEPS, _STEPS = 512, 2, 19
_TOGETHER = 128
"""Texts of a step that is measured, at most."""


class Bench(NamedTuple):
    """Processes that measure at the same time, and where: their number and CPU threads."""

    workspace: Workspace
    device: str
    processes: int
    threads: int
    seconds: float = SECONDS

    def embedding_rate(self, store: Store) -> float:
        """Tokens per second of one process of a store's teacher, from texts to vectors."""
        return statistics.fmean(self._run(_embedding, store))

    def training_paces(self, stages: Sequence[Stage], dim: int) -> tuple[list[Pace], float]:
        """Paces of stages in one process, and tokens per second that the last one's student encodes.

        ``dim`` is the dimension of the teacher's vectors.
        """
        paces, rates = zip(*self._run(_training, stages, dim), strict=True)
        means = [Pace(*map(statistics.fmean, zip(*each, strict=True))) for each in zip(*paces, strict=True)]
        return means, statistics.fmean(rates)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))
        pool = ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn"))
        try:
            with variables_set({**variables, "TOKENIZERS_PARALLELISM": "false"}), pool:
                with script_left_out():
                    each = [pool.submit(function, self, *arguments) for _ in range(self.processes)]
                return [one.result() for one in each]
        except BrokenProcessPool:
            raise BadInput(
                "the measurement must have memory for as many models as run at once, but a process of it "
                "ended. Close other programs, or give --actors and --concurrency."
            ) from None


def _embedding(here: Bench, store: Store) -> float:
    torch.set_num_threads(here.threads)
    running = start(store, here.workspace, here.device, here.threads)
    tokenizer = FastTokenizer(Path(on_this_machine(store.model).path), store.max_length)
    forward = running.forward(store, tokenizer.pad_id, here.device)
    texts = [store.prompt + text for text in sample_of(here.workspace, store.texts, _TEXTS)[1]]

    def once() -> int:
        ids, offsets = tokenizer(texts)
        forward(ids, offsets)
        return len(ids)

    forward(*tokenizer(texts[:8]))
    return _rate(once, here.seconds)


def _rate(run: Callable[[], int], seconds: float) -> float:
    """Amount per second of something that is done until the time is over, once at least."""
    began, amount = time.perf_counter(), 0
    while True:
        amount += run()
        passed = time.perf_counter() - began
        if passed >= seconds:
            return amount / passed


def _training(here: Bench, stages: Sequence[Stage], dim: int) -> tuple[list[Pace], float]:
    torch.set_num_threads(here.threads)
    share = here.seconds / (len(stages) + 1)
    return [_steps(here, stage, dim, share) for stage in stages], _encoding(here, stages[-1], share)


def _encoding(here: Bench, stage: Stage, seconds: float) -> float:
    """Tokens per second of a student, as its evaluations encode; 0 for one that only scores pairs."""
    student = build_student(stage)
    encoder = encoder_of(student, stage.max_length, stage.autocast, here.device, stage.prompts)
    if not isinstance(encoder, Encoder):
        return 0.0
    texts = sample_of(here.workspace, next(iter(stage.examples.columns.values())), _TEXTS)[1]
    tokens = len(FastTokenizer(Path(tokenizer_of(stage).path), stage.max_length)(texts)[0])

    def once() -> int:
        encoder.encode(texts)
        return tokens

    encoder.encode(texts[: _TEXTS // 8])
    return _rate(once, seconds)


def _steps(here: Bench, stage: Stage, dim: int, seconds: float) -> Pace:
    """Take some steps of a stage in the real loop, of fewer examples where there are many texts."""
    least = TEXTS_TOGETHER * stage.accumulate
    fitting = _TOGETHER * stage.accumulate // kind_of(stage).texts // least * least
    batch = min(stage.batch_size, max(least, fitting))
    short = replace(
        stage,
        batch_size=batch,
        budget=_STEPS * batch,
        dev=None,
        evaluate_every=0,
        evaluate_at=(),
        patience=0,
        soup=0,
        start_from=None,
        keeps_objective=False,
        shard_window=0,
    )
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as folder:
        began, place = time.time(), Path(folder)
        log = place / NAME

        def over() -> bool:
            lines = list(read_lines(log))
            return bool(lines) and lines[-1]["step"] > _LEAST_STEPS and time.time() - began > seconds

        table = stand_in(here.workspace, stage, dim, max(_TEXTS, 2 * stage.batch_size))
        with contextlib.suppress(Interrupted):
            fit(short, table, place, device=here.device, stop_requested=over, checkpoint_seconds=1e9)
        pace = pace_of(course_of(read_lines(log), began=began))
    assert pace is not None, "it took some steps"
    return pace
