"""One stage on several processes: the same loop under DDP, by Ray Train or in plain processes."""

import contextlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from stillhouse.cluster.connection import RUNS
from stillhouse.cluster.nodes import in_words
from stillhouse.cluster.preemption import leaving
from stillhouse.cluster.resources import Need
from stillhouse.cluster.slots import RoomWatch, room_watched
from stillhouse.core.artifacts import Workspace, locked
from stillhouse.core.distributed import end_rank
from stillhouse.core.errors import BadInput, mistake_in
from stillhouse.core.machine import ranks_on_loopback, script_left_out, variables_set
from stillhouse.training.fit import OnEvaluation
from stillhouse.training.local import fetch_start, fit_here
from stillhouse.training.progress import Diverged, Stopped
from stillhouse.training.rank_sync import Interrupted, on_rank0, stop_signals
from stillhouse.training.worker_mailbox import Wait, WorkerMailbox, mailbox_of
from stillhouse.values.stage import Stage

if TYPE_CHECKING:
    from stillhouse.training.where import Where

COLLECTIVE_SECONDS = 900
"""Timeout of collective operations in seconds: a rank that takes longer over a step hangs."""
START_METHOD = "spawn"
"""Start method of plain processes; a forked process cannot use CUDA."""
STOP_SECONDS = 120
"""Time in seconds that workers have to checkpoint after a stop request."""
_GRACE_SECONDS = 2.0
"""Time in seconds that ranks have to end by themselves when one has failed."""


@dataclass(frozen=True)
class RankTask:
    """The arguments of every rank.

    Attributes:
        stage: The stage to train; its inputs are built.
        workspace: The workspace, under the same absolute path for every rank.
        where: Device, threads, workers.
        parent: Process on this machine that waits for the result; the ranks stop when it ends. 0 for none.
    """

    stage: Stage
    workspace: Workspace
    where: "Where"
    parent: int = 0


def fit_with_workers(
    stage: Stage,
    workspace: Workspace,
    where: "Where",
    *,
    device: str,
    on_evaluation: OnEvaluation | None = None,
) -> None:
    """Train a stage on ``where.workers`` processes: by Ray Train if Ray is running, else plain processes.

    ``on_evaluation`` is called in the caller's thread, so that it may report to Tune. If it requests an end
    or raises, the workers checkpoint and exit by themselves, and leave nothing behind.

    Raises:
        Diverged: As in `fit`.
        Stopped: ``on_evaluation`` requested it.
        Interrupted: A signal ended the run.
    """
    import ray

    task = RankTask(stage, replace(workspace, root=workspace.root.resolve()), where)
    start = _through_ray if ray.is_initialized() else fit_distributed_local
    mailbox = mailbox_of(task.workspace, stage)
    free_resources(task.workspace, stage)
    mailbox.clear()
    task.workspace.place(stage).mkdir(parents=True, exist_ok=True)
    thread = _Thread(lambda: start(task, device))
    try:
        with stop_signals() as signalled, _running(thread, mailbox):
            while thread.is_alive() and mailbox.failure() is None:
                thread.join(0.2)
                if signalled.is_set():
                    raise Interrupted(f"{stage.label} was interrupted; the same command continues from here.")
                _report(mailbox, on_evaluation)
        if (failure := mailbox.failure()) is not None:
            free_resources(task.workspace, stage)  # Under Ray this ends the other ranks.
            thread.join(STOP_SECONDS)
            raise failure
        if thread.error is not None:
            raise thread.error
        _report(mailbox, on_evaluation)
    finally:
        if not thread.is_alive():  # Otherwise its ranks have yet to read that they are to stop.
            # What is left where the store is gone is cleared by the next run; the first error is to be seen.
            with contextlib.suppress(Exception):
                # A run that ended because its controller was lost, as a stopped trial's is, still holds some.
                free_resources(task.workspace, stage)
                mailbox.clear()
    assert workspace.finished(stage), "workers that end without a failure have finished the stage"


def free_resources(workspace: Workspace, stage: Stage) -> None:
    """Free the cluster resources that an ended run of a stage still holds; no process trains it now.

    A run whose process was killed leaves its placement group to a watcher of Ray, which fails if the
    dashboard does not answer or the machine has several clusters; the next run would then wait for ever.
    """
    import ray

    name = mailbox_of(workspace, stage).placement_group() if ray.is_initialized() else ""
    if not name:
        return
    from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

    group = PlacementGroup(ray.PlacementGroupID.from_hex(name))
    if placement_group_table(group).get("state", "REMOVED") != "REMOVED":
        remove_placement_group(group)


def fit_distributed_local(task: RankTask, device: str = "cpu") -> None:
    """Train on plain processes of this machine, without Ray: gloo on the CPU, nccl on GPUs."""
    owned = RankTask(task.stage, task.workspace, task.where, parent=os.getpid())
    # Otherwise every rank prints that no parameter was unused.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as folder, variables_set(ranks_on_loopback()):
        with script_left_out():
            ranks = torch.multiprocessing.start_processes(  # type: ignore[attr-defined, no-untyped-call]
                _local_rank,
                (owned, device, f"file://{folder}/ranks"),
                nprocs=task.where.workers,
                join=False,
                start_method=START_METHOD,
            )
        while not ranks.join(grace_period=_GRACE_SECONDS):
            pass


def train_rank(task: RankTask, device: str) -> None:
    """Train as one rank of the existing process group.

    An error that a retry cannot fix is written down, for the process that waits for the ranks; after any
    other one the ranks start again from the last checkpoint.
    """
    folder, mailbox = task.workspace.place(task.stage), mailbox_of(task.workspace, task.stage)
    try:
        if not folder.is_dir() and task.workspace.remote is None:
            raise BadInput(
                f"Every worker must see the workspace, but {socket.gethostname()} has no {folder}. Put the "
                "workspace on a file system that all nodes share (--root), or keep it in a --remote."
            )
        folder.mkdir(parents=True, exist_ok=True)
        # A rank whose node is about to go does not end: Ray Train starts all of them again when it is gone.
        with _only_writer(folder), leaving() as soon:
            mailbox.start()
            fetch_start(task.stage, task.workspace)
            fit_here(
                task.stage,
                task.workspace,
                task.where,
                device=device,
                on_evaluation=mailbox.send,
                stop_requested=lambda: mailbox.stop_requested() or task.parent not in (0, os.getppid()),
                save_requested=soon.is_set,
            )
    except Interrupted:
        return
    except Exception as error:
        known = error if isinstance(error, Diverged) else mistake_in(error)
        if known is not None:
            mailbox.send_failure(known)
        raise


def _through_ray(task: RankTask, device: str) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.exceptions import WorkerGroupError

    from stillhouse.training.worker_rendezvous import torch_config

    on_gpu, where, stage = device.startswith("cuda"), task.where, task.stage
    need = Need(where.workers, float(max(1, where.threads)), float(on_gpu))
    run_folder = task.workspace.root / RUNS / f"{stage.label}-{stage.fingerprint}"

    def fit() -> None:
        TorchTrainer(
            _ray_rank,
            train_loop_config={"task": task, "device": device},
            torch_config=torch_config("nccl" if on_gpu else "gloo", COLLECTIVE_SECONDS, run_folder),
            scaling_config=ScalingConfig(
                num_workers=where.workers,
                use_gpu=on_gpu,
                resources_per_worker={"CPU": need.cpus} | ({"GPU": need.gpus} if on_gpu else {}),
            ),
            run_config=RunConfig(name=run_folder.name, storage_path=str(run_folder.parent)),
        ).fit()

    with room_watched(_room_watch(task, need)):
        for left in reversed(range(where.max_failures + 1)):
            try:
                return fit()
            except WorkerGroupError:  # Ray Train itself would start ranks again that are not to be retried.
                if not left or mailbox_of(task.workspace, stage).failure() is not None:
                    raise
            finally:  # Checkpoints belong to the stage: nothing in this folder is needed again.
                shutil.rmtree(run_folder, ignore_errors=True)


def _room_watch(task: RankTask, need: Need) -> RoomWatch:
    """Return what notes that the ranks have no room where those who show the run's progress look."""
    mailbox, worker = mailbox_of(task.workspace, task.stage), in_words(need.worker)
    room = f"room for {need.workers} workers with {worker} each"
    if need.workers == 1:
        room = f"room for a worker with {worker}"
    return RoomWatch(
        need, mailbox.placement_group, lambda began, ended: mailbox.note_wait(Wait(room, began, ended))
    )


def _ray_rank(config: dict[str, Any]) -> None:
    from ray.train.torch import get_device
    from ray.util import get_current_placement_group

    task, device = config["task"], config["device"]
    group = get_current_placement_group()
    if group is not None:
        mailbox_of(task.workspace, task.stage).record_group(group.id.hex())
    train_rank(task, str(get_device()) if device.startswith("cuda") else device)


def _local_rank(number: int, task: RankTask, device: str, meeting: str) -> None:
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(number)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=meeting,
        rank=number,
        world_size=task.where.workers,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    try:
        train_rank(task, f"cuda:{number}" if on_gpu else device)
    except BaseException:
        dist.destroy_process_group()
        raise
    end_rank()


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Let rank 0 wait for the ranks of a killed run that have not ended yet; the others wait for rank 0."""
    with contextlib.ExitStack() as held:
        on_rank0(lambda: held.enter_context(locked(folder / "writer.lock")))
        yield


@contextlib.contextmanager
def _running(thread: "_Thread", mailbox: WorkerMailbox) -> Iterator[None]:
    """Start the thread, and stop the workers if the block ends with an error."""
    thread.start()
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # A store that is gone must not hide the error.
            mailbox.request_stop()
        thread.join(STOP_SECONDS)
        raise


def _report(mailbox: WorkerMailbox, on_evaluation: OnEvaluation | None) -> None:
    for evaluation in mailbox.receive():
        if on_evaluation is not None and on_evaluation(evaluation):
            raise Stopped(f"{evaluation.stage} was stopped early, after {evaluation.examples} examples.")


class _Thread(threading.Thread):
    """A thread that keeps the error it ended with."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error
