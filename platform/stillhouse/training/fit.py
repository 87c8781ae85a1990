"""The training loop: plain torch, in one process or as one rank of many, resumed exactly where it stopped."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stillhouse.core.artifacts import remove_unfinished, write_manifest
from stillhouse.core.console import say, warn
from stillhouse.core.distributed import rank, world_size
from stillhouse.core.errors import out_of_memory
from stillhouse.core.types import Batch, Terms
from stillhouse.core.watchdog import Watchdog
from stillhouse.students.cpu.attention import optimise_for_cpu
from stillhouse.training import checkpoint
from stillhouse.training.average import WeightAverage, averaged
from stillhouse.training.batching import Batching
from stillhouse.training.meter import Meter
from stillhouse.training.metrics_log import NAME, MetricsLog, Pulse
from stillhouse.training.module import StudentAndObjective, build_module, distributed
from stillhouse.training.prefetch import batches, check_shares
from stillhouse.training.progress import Diverged, Evaluation, Progress, Stopped, evaluation_due, selecting
from stillhouse.training.published_run import PublishedRun
from stillhouse.training.rank_sync import (
    Interrupted,
    any_rank,
    from_all_ranks,
    on_rank0,
    rank0_value,
    stop_signals,
)
from stillhouse.training.schedule import learning_rate, make_optimizer
from stillhouse.training.soup import Soup, mean_of
from stillhouse.training.summary import summary
from stillhouse.training.table import TrainingTable
from stillhouse.training.term_gradients import PREFIX, TermGradients, measured_at
from stillhouse.training.watch import Evaluate, measure
from stillhouse.values.stage import TEXTS_TOGETHER, Stage

STUDENT, OBJECTIVE = "student.safetensors", "objective.safetensors"
CONTROL_EVERY = 10
"""Steps between two points at which several ranks agree whether to save or stop."""
_OFTEN_S = 5.0
"""Seconds between two checkpoints while a node of the run is about to go."""
_SAVED_FOR = 50
"""Times that what a checkpoint costs must have passed before the next one, beside those of evaluations."""

OnEvaluation = Callable[[Evaluation], bool]


def fit(
    stage: Stage,
    table: TrainingTable,
    folder: Path,
    *,
    device: str = "cpu",
    evaluate: Evaluate | None = None,
    held_out: TrainingTable | None = None,
    start: Mapping[str, float] | None = None,
    on_evaluation: OnEvaluation | None = None,
    first_weights: Path | None = None,
    live_weights: Path | None = None,
    first_objective: Path | None = None,
    first_layer: Path | None = None,
    checkpoint_seconds: float = 60.0,
    stop_requested: Callable[[], bool] | None = None,
    save_requested: Callable[[], bool] | None = None,
    published: PublishedRun | None = None,
    step_limit_s: float = 0.0,
) -> None:
    """Train a stage to its end, continuing from its newest checkpoint.

    Every rank of a process group makes the same call; rank 0 writes and evaluates.

    Args:
        stage: The stage to train.
        table: The examples.
        folder: The stage's folder. Its ``manifest.json``, written last, marks the stage as finished.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
        evaluate: The dev suite; None measures nothing and keeps the last weights.
        held_out: Texts whose loss is reported with every evaluation; None reports none.
        start: Dev figures of the student that the plan starts from, for the manifest.
        on_evaluation: Called with every evaluation, including those before a resumption; returning True
            requests an early end.
        first_weights: Student weights of the previous stage.
        live_weights: Weights of the stage whose student is the live teacher.
        first_objective: Objective weights of the previous stage, where this one keeps them.
        first_layer: Weights of the student's kept layer, where it is fitted.
        checkpoint_seconds: Time between two checkpoints in seconds, or 50 times what the last one took, if
            that is more; every evaluation writes one too.
        stop_requested: Called between steps; returning True checkpoints and ends the run, as a signal does.
        save_requested: Called between steps; as long as it returns True on any rank, a checkpoint is written
            every few seconds.
        published: Keeps the checkpoints in the workspace's remote; None if there is none.
        step_limit_s: Seconds after which a step that does not end ends the process; 0 for no limit.

    Raises:
        Diverged: The loss is not finite, or the student collapsed.
        Stopped: ``on_evaluation`` requested it.
        Interrupted: SIGINT, SIGTERM or ``stop_requested`` ended the run.
        BadInput: The batch cannot be divided evenly, or the selecting metric is not measured.
    """
    check_shares(stage)
    on_rank0(lambda: _find_checkpoints(folder, published))
    begun = rank0_value(bool(checkpoint.steps(folder)))
    module = build_module(stage, table.teacher_dim, first_weights, live_weights, first_objective, first_layer)
    if not begun:
        module.objective.fit_teacher(table.teacher_blocks())
        for line in module.objective.remarks(table.values) if rank() == 0 else ():
            warn(line)
    loop = _Loop(stage, table, folder, device, module, checkpoint_seconds, held_out, published)
    loop.start = dict(start or {})
    loop.save_requested = save_requested or loop.save_requested
    try:
        if loop.progress.ended(stage, loop.batching):
            loop.finish(evaluate)
        for past in loop.progress.curve:
            loop.report(on_evaluation, past)
        with stop_signals() as signalled, Watchdog(step_limit_s) as watchdog:
            loop.train(
                evaluate,
                on_evaluation,
                lambda: signalled.is_set() or (stop_requested is not None and stop_requested()),
                watchdog,
            )
    finally:
        loop.metrics_log.close()
        if published is not None:
            published.close()


def _find_checkpoints(folder: Path, published: PublishedRun | None) -> None:
    """Put damaged checkpoints aside, then fetch the one of the remote if it is newer than the good ones."""
    checkpoint.heal(folder)
    if published is not None and published.restore():
        checkpoint.heal(folder)


class _Loop:
    """The state of a run and its operations, in the order in which they happen."""

    def __init__(
        self,
        stage: Stage,
        table: TrainingTable,
        folder: Path,
        device: str,
        module: StudentAndObjective,
        checkpoint_seconds: float,
        held_out: TrainingTable | None,
        published: PublishedRun | None,
    ) -> None:
        self.held_out, self.published = held_out, published
        self.batching = Batching(stage, table)
        self.stage, self.table, self.folder, self.device = stage, table, folder, device
        self.checkpoint_seconds = checkpoint_seconds
        self.module = module.to(device).train()
        optimise_for_cpu(self.module, device)
        self.optimizer = make_optimizer(self.module, stage.optimizer, device)
        self.average = WeightAverage(self.module, stage.average) if stage.average else None
        self.meter, self.progress = Meter(), Progress()
        self.save_requested: Callable[[], bool] = lambda: False
        self.accumulate = stage.accumulate
        self.shares: dict[str, float] = {}
        self.start: dict[str, float] = {}
        self._before: set[int] = set()
        # Ranks differ in dropout alone; the initial weights above were drawn from the same seed on all.
        checkpoint.seed_everything(stage.seed + 1_000_003 * (rank() + 1))
        self._resume()
        self.wrapped = distributed(self.module)
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        self.of_student = [p for p in self.module.student.parameters() if p.requires_grad]
        self.log_every = max(1, min(50, self.batching.steps // 10))
        # Only rank 0 writes metrics; the others open a log that leads nowhere.
        log = folder / NAME if rank() == 0 else Path("/dev/null")
        self.metrics_log = MetricsLog(log, after=self.progress.step)
        self.pulse = Pulse(folder) if rank() == 0 else None
        self._tick = self._saved = time.perf_counter()
        self._save_cost = 0.0

    def train(
        self,
        evaluate: Evaluate | None,
        on_evaluation: OnEvaluation | None,
        stop_requested: Callable[[], bool],
        watchdog: Watchdog,
    ) -> None:
        """Step until the budget or patience is spent; evaluations may take as long as they want."""
        self._tick = self._saved = time.perf_counter()
        upcoming = self._upcoming()
        try:
            while not self.progress.ended(self.stage, self.batching):
                watchdog.feed()
                if self._step(upcoming):
                    upcoming.close()
                    upcoming = self._upcoming()  # In smaller parts.
                    continue
                self._beat()
                if self._logs_at(self.progress.step):
                    self._log()
                if self.shares:
                    self._write(self.shares)
                    self.shares = {}
                if self._evaluation_due(self.progress.step):
                    watchdog.rest()
                    self._evaluate(evaluate, on_evaluation)
                if not self.progress.ended(self.stage, self.batching):
                    self._control(stop_requested)
        finally:
            upcoming.close()

    def _upcoming(self) -> Generator[Batch, None, None]:
        stage = dataclasses.replace(self.stage, accumulate=self.accumulate)
        return batches(stage, self.table, self.device, self.progress.step, self.batching)

    def finish(self, evaluate: Evaluate | None) -> None:
        """Write the selected weights, then the manifest; checkpoints are no longer needed.

        Where the soup is kept, the last evaluation is that of the soup.
        """
        self.progress.curve[-1] = on_rank0(lambda: self._finish(evaluate))

    def _finish(self, evaluate: Evaluate | None) -> Evaluation:
        chosen = self.progress.best[0][1] if self.progress.best else self.progress.step
        student, objective = self._weights_at(chosen)
        soup = None
        if self.stage.soup > 1 and len(self.progress.best) > 1 and evaluate is not None:
            mixed = self._mean_of_best()
            soup = self._tasted(mixed, evaluate)
            if soup.kept:
                chosen, (student, objective) = self.progress.step, mixed
                self.progress.curve[-1] = dataclasses.replace(self.progress.curve[-1], metrics=soup.metrics)
                self._write(soup.metrics)
        checkpoint.save_weights(self.folder / STUDENT, student)
        checkpoint.save_weights(self.folder / OBJECTIVE, objective)
        sha256 = checkpoint.weights_sha256(student)
        seen = self.batching.examples_after(self.progress.step)
        live: Any = self.module.live
        teacher_dim = self.table.teacher_dim if live is None else live.dim
        manifest = summary(
            self.stage, self.progress, seen, chosen, sha256, self.table.dropped, teacher_dim, soup
        )
        manifest |= {"start": self.start} if self.start else {}
        if self.published is not None:
            self.published.last()
        write_manifest(self.folder, manifest)
        remove_unfinished(self.folder)
        if self.published is not None:
            self.published.finished()
        return self.progress.curve[-1]

    def _mean_of_best(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The means of the best evaluated weights of student and objective."""
        students, objectives = zip(*(self._weights_at(step) for _, step in self.progress.best), strict=True)
        return mean_of(students, self.module.student), mean_of(objectives, self.module.objective)

    def _tasted(self, mixed: tuple[dict[str, Tensor], dict[str, Tensor]], evaluate: Evaluate) -> Soup:
        """Measure a soup, and decide whether it is kept; the module has its weights again afterwards."""
        parts = (self.module.student, self.module.objective)
        before = [{name: value.clone() for name, value in part.state_dict().items()} for part in parts]
        for part, state in zip(parts, mixed, strict=True):
            part.load_state_dict(state)
        metrics, collapsed = measure(
            self.module, self.stage, self.table, self.device, evaluate, self.held_out
        )
        for part, state in zip(parts, before, strict=True):
            part.load_state_dict(state)
        assert self.stage.dev is not None, "only what is evaluated has best weights"
        figure = selecting(metrics, self.stage.dev.select) if collapsed is None else -math.inf
        steps = tuple(step for _, step in self.progress.best)
        return Soup(steps, metrics, kept=figure > self.progress.best[0][0])

    def report(self, on_evaluation: OnEvaluation | None, evaluation: Evaluation) -> None:
        """Report an evaluation on every rank, and stop all ranks if one requests it."""
        if on_evaluation is None or not evaluation.metrics:
            return
        if any(any_rank(self.device, on_evaluation(evaluation))):
            raise Stopped(f"{evaluation.stage} was stopped early, after {evaluation.examples} examples.")

    def _step(self, upcoming: Iterator[Batch]) -> bool:
        """Make a step; return True where it did not fit the memory and is to be made of smaller parts."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        self.module.watching = self._logs_at(self.progress.step + 1)
        try:
            losses = [self._backward(upcoming, micro) for micro in range(self.accumulate)]
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error) or not self._divisible():
                raise
            losses = []
        if not losses:
            self._halve()
            return True
        for values in losses:
            self.meter.add(values, share=1 / self.accumulate)
        self.meter.add({"grad_norm": self._clip()})
        self.meter.step()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        if self.average is not None:
            self.average.update(self.progress.step)
        return False

    def _backward(self, upcoming: Iterator[Batch], micro: int) -> dict[str, Tensor]:
        """Add a micro-batch's part of the gradient; return its loss and its terms."""
        with _synchronised(self.wrapped, micro == self.accumulate - 1):
            terms = self.wrapped(next(upcoming))
            loss = torch.stack(list(terms.values())).sum()
            gradients = self._gradients_of(terms) if micro == 0 else None
            torch.autograd.backward(loss / self.accumulate)
        if gradients is not None:
            self._note_shares(gradients)
        return {"loss": loss.detach(), **{f"loss/{name}": term.detach() for name, term in terms.items()}}

    def _divisible(self) -> bool:
        """Whether smaller micro-batches are possible, and change rounding (and dropout's draws) alone."""
        whole = TEXTS_TOGETHER if self.stage.batch_tokens else self.stage.batch_size
        free = not self.module.objective.why_coupled()
        return free and world_size() == 1 and whole % (2 * self.accumulate) == 0

    def _halve(self) -> None:
        self.accumulate *= 2
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()
        at = f"{self.stage.label}: a step does not fit the memory of {self.device}"
        say(f"  {at}: going on in {self.accumulate} parts, which changes rounding alone")

    def _gradients_of(self, terms: Terms) -> TermGradients | None:
        """Begin to measure the shares of several terms in the gradient, if this step is one that measures."""
        due = measured_at(self.progress.step + 1, self.batching.steps)
        if not due or len(terms) < 2 or not self.of_student:
            return None
        gradients = TermGradients(self.of_student)
        gradients.before_backward(terms)
        return gradients

    def _note_shares(self, gradients: TermGradients) -> None:
        shares = gradients.shares(scale=1 / self.accumulate, averaged=self.accumulate == 1)
        if shares:
            self.progress.gradient_shares.append(shares)
            self.shares = {f"{PREFIX}{name}": share for name, share in shares.items()}

    def _clip(self) -> Tensor:
        norm = nn.utils.get_total_norm([p.grad for p in self.trained if p.grad is not None])
        if self.stage.optimizer.clip_norm > 0:
            nn.utils.clip_grads_with_norm_(self.trained, self.stage.optimizer.clip_norm, norm)
        return norm

    def _evaluation_due(self, step: int) -> bool:
        return evaluation_due(self.batching, self.stage.evaluate_every, step, self.stage.evaluate_at)

    def _logs_at(self, step: int) -> bool:
        return step == 1 or step % self.log_every == 0 or self._evaluation_due(step)

    def _log(self) -> None:
        """Read the means, which waits for the device, and stop if one is not finite."""
        means, at, rate = self.meter.read(), self.progress, self._rate(-1)
        if not all(math.isfinite(mean) for mean in means.values()):
            shown = ", ".join(f"{name}={mean:.4g}" for name, mean in means.items())
            raise Diverged(
                f"{self.stage.label}: the loss must be finite, but at step {at.step} of "
                f"{self.batching.steps} (learning rate {rate:.3g}) it was not: {shown}. Lower the rate."
            )
        self._lap()
        seen = self.batching.examples_after(at.step) - self.batching.examples_after(at.logged_step)
        speed = seen / max(at.seconds - at.logged_seconds, 1e-9)
        at.logged_step, at.logged_seconds = at.step, at.seconds
        self._write({**means, **self.module.readings, "learning_rate": rate, "examples_per_second": speed})

    def _evaluate(self, evaluate: Evaluate | None, on_evaluation: OnEvaluation | None) -> None:
        if self.pulse is not None and evaluate is not None:
            self.pulse.beat(self.batching.examples_after(self.progress.step), evaluating=True)
        with self.average.in_place() if self.average is not None else contextlib.nullcontext():
            metrics, collapsed = on_rank0(
                lambda: measure(self.module, self.stage, self.table, self.device, evaluate, self.held_out)
            )
        if collapsed is not None:
            why, of = collapsed.partition(": ")[2], self.batching.steps
            raise Diverged(
                f"{self.stage.label}: the student collapsed by step {self.progress.step} of {of} (learning "
                f"rate {self._rate(-1):.3g}): {why}. Lower the rate."
            )
        evaluation = self.progress.note(self.stage, self.batching, metrics)
        if metrics:
            self._write(metrics)
        self._tick = time.perf_counter()
        if evaluation.final and self.stage.soup <= 1:
            self._require_finite()  # The weights follow at once, and a checkpoint would be removed again.
        else:
            self._save()
        if evaluation.final:
            # Before the report: the callback may end this process at the last evaluation.
            self.finish(evaluate)
        self.report(on_evaluation, self.progress.curve[-1])
        self._tick = time.perf_counter()

    def _control(self, stop_requested: Callable[[], bool]) -> None:
        if world_size() > 1 and self.progress.step % CONTROL_EVERY:
            return
        waited = time.perf_counter() - self._saved
        save = waited >= max(self.checkpoint_seconds, _SAVED_FOR * self._save_cost) and rank() == 0
        soon = waited >= _OFTEN_S and self.save_requested()
        stop, save = any_rank(self.device, stop_requested(), save or soon)
        if stop or save:
            self._save()
        if stop:
            raise Interrupted(
                f"{self.stage.label} was interrupted at step {self.progress.step} of {self.batching.steps}; "
                "the same command continues from here."
            )

    def _require_finite(self) -> None:
        """Stop where weights are not finite: nothing that continues from them could recover."""
        if not all(bool(torch.isfinite(weights).all()) for weights in self.trained):
            raise Diverged(
                f"{self.stage.label}: the weights must be finite, but at step {self.progress.step} of "
                f"{self.batching.steps} some are not; the learning rate may be too high."
            )

    def _save(self) -> None:
        self._lap()
        self._require_finite()
        rngs = from_all_ranks(checkpoint.rng_state())
        on_rank0(lambda: self._write_checkpoint(rngs))
        self._saved = time.perf_counter()
        self._save_cost = self._saved - self._tick

    def _write_checkpoint(self, rngs: list[object]) -> None:
        self.metrics_log.sync()
        state = {
            "progress": self.progress.state(),
            "student": self.module.student.state_dict(),
            "objective": self.module.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "meter": self.meter.state(),
            "rng": rngs,
            **({"average": self.average.state()} if self.average is not None else {}),
        }
        checkpoint.save(self.folder, self.progress.step, state)
        # The checkpoint before this one stays, with those that it needs, in case this one is damaged later.
        needed = self._needed()
        checkpoint.prune(self.folder, needed | self._before)
        self._before = needed
        if self.published is not None:
            self.published.checkpoint()

    def _resume(self) -> None:
        newest = rank0_value(max(checkpoint.steps(self.folder), default=None))
        if newest is None:
            return
        # The other ranks may be on machines that share no disk with that of rank 0.
        state = on_rank0(lambda: checkpoint.load(self.folder, newest))
        self.module.student.load_state_dict(state["student"])
        self.module.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.restore(state["average"])
        self.progress = Progress.restored(state["progress"])
        self._before = self._needed()
        self.meter.restore(**state["meter"], device=self.device)
        if len(state["rng"]) == world_size():
            checkpoint.set_rng_state(state["rng"][rank()])

    def _needed(self) -> set[int]:
        """The checkpoints from which this run could continue and finish."""
        return {self.progress.step, *(step for _, step in self.progress.best)}

    def _weights_at(self, step: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weights of student and objective after a step; their averages, if the stage averages."""
        if step == self.progress.step:
            student, objective = self.module.student.state_dict(), self.module.objective.state_dict()
            averages = {} if self.average is None else self.average.state()
        else:
            state = checkpoint.load(self.folder, step)
            student, objective, averages = state["student"], state["objective"], state.get("average", {})
        return averaged("student", student, averages), averaged("objective", objective, averages)

    def _rate(self, offset: int = 0) -> float:
        return learning_rate(self.stage.optimizer, self.progress.step + offset, self.batching.steps)

    def _write(self, metrics: dict[str, float]) -> None:
        if rank() == 0:
            examples = self.batching.examples_after(self.progress.step)
            self.metrics_log.append(self.progress.step, examples, metrics)

    def _beat(self) -> None:
        """Tell whoever follows the run how far it is, every few seconds."""
        if self.pulse is not None and self.pulse.due():
            examples = self.batching.examples_after(self.progress.step)
            self.pulse.beat(examples)
            if self.published is not None:
                self.published.tell(examples)

    def _lap(self) -> None:
        now = time.perf_counter()
        self.progress.seconds += now - self._tick
        self._tick = now


def _synchronised(module: nn.Module, last: bool) -> contextlib.AbstractContextManager[object]:
    """Let DDP average gradients only in the backward pass of the last micro-batch."""
    if last or not isinstance(module, DistributedDataParallel):
        return contextlib.nullcontext()
    return module.no_sync()
