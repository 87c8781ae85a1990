"""One stage on several processes: the same loop under DDP, by Ray Train or as plain processes."""

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from stillhouse.core.artifacts import Workspace, locked
from stillhouse.core.distributed import rank
from stillhouse.core.errors import BadInput, require
from stillhouse.plan.stage import Stage
from stillhouse.training.fit import Listen
from stillhouse.training.local import fit_here
from stillhouse.training.progress import Diverged, Stopped
from stillhouse.training.rank_sync import Interrupted, from_first, stop_signals
from stillhouse.training.worker_mailbox import Post

if TYPE_CHECKING:
    from stillhouse.training.walk import Where

COLLECTIVE_SECONDS = 7200
"""Ranks wait so long for each other: rank 0 evaluates while the others wait."""
START_METHOD = "spawn"
"""Of plain processes; a forked one cannot use CUDA."""
LAST_WORDS_SECONDS = 120
"""Workers that were asked to stop have so long to checkpoint."""


@dataclass(frozen=True)
class Errand:
    """What every rank is told.

    Attributes:
        stage: What is trained; its inputs are built.
        workspace: Under the same absolute path for every rank.
        where: Device, threads, workers.
        parent: A process of this machine without which nobody waits for the result; 0 for none.
    """

    stage: Stage
    workspace: Workspace
    where: "Where"
    parent: int = 0


def fit_with_workers(
    stage: Stage, workspace: Workspace, where: "Where", *, device: str, listen: Listen | None = None
) -> None:
    """Train a stage on ``where.workers`` processes; Ray Train where Ray is running, else plain processes.

    ``listen`` is called here, in the caller's thread, so that it may report to Tune. When it asks for an
    end, or raises, the workers checkpoint and end by themselves, and nothing of theirs is left behind.

    Raises:
        Diverged: As in `fit`.
        Stopped: ``listen`` asked for it.
        Interrupted: A signal asked for it.
    """
    import ray

    errand = Errand(stage, Workspace(workspace.root.resolve()), where)
    start = _through_ray if ray.is_initialized() else fit_distributed_local
    post = Post(errand.workspace.path(stage))
    free_resources(errand.workspace, stage)
    post.clear()
    thread = _Thread(lambda: start(errand, device))
    with stop_signals() as asked, _ended(thread, post):
        while thread.is_alive():
            thread.join(0.2)
            if asked.is_set():
                raise Interrupted(f"{stage.label} was interrupted; the same command goes on from here.")
            _pass_on(post, listen)
    post.raise_end()
    if thread.error is not None:
        raise thread.error
    _pass_on(post, listen)
    assert workspace.finished(stage), "workers that end without a word have finished the stage"


def free_resources(workspace: Workspace, stage: Stage) -> None:
    """Free what an ended run of a stage still holds of the cluster.

    A run whose process was ended leaves its placement group to a watcher of Ray's, which is blind where the
    dashboard does not answer or the machine has several clusters; the next run would wait for ever.

    Args:
        workspace: Where the stage is.
        stage: Nobody trains it now.
    """
    import ray

    name = Post(workspace.path(stage)).group()
    if not name or not ray.is_initialized():
        return
    from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

    group = PlacementGroup(ray.PlacementGroupID.from_hex(name))
    if placement_group_table(group).get("state", "REMOVED") != "REMOVED":
        remove_placement_group(group)


def fit_distributed_local(errand: Errand, device: str = "cpu") -> None:
    """Train on plain processes of this machine, without Ray: gloo on the CPU, nccl on GPUs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = Errand(errand.stage, errand.workspace, errand.where, parent=os.getpid())
    arguments = (told, device, port)
    # Else every rank prints that no parameter was unused.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    torch.multiprocessing.start_processes(  # type: ignore[attr-defined, no-untyped-call]
        _local_rank, arguments, nprocs=errand.where.workers, start_method=START_METHOD
    )


def train_rank(errand: Errand, device: str) -> None:
    """Train as one rank of the process group that is there.

    What retrying cannot mend is written down and ends this rank quietly; anything else is raised, and Ray
    Train starts the ranks again, from the last checkpoint.
    """
    folder = errand.workspace.path(errand.stage)
    post = Post(folder)
    require(
        folder.is_dir(),
        "every worker sees the workspace",
        folder=str(folder),
        host=socket.gethostname(),
        remedy="Put the workspace on a file system that all nodes share (--root).",
    )
    try:
        with _only_writer(folder):
            post.start()
            fit_here(
                errand.stage,
                errand.workspace,
                errand.where,
                device=device,
                listen=post.tell,
                asked=lambda: post.asked() or errand.parent not in (0, os.getppid()),
            )
    except (Diverged, BadInput) as error:
        post.give_up(error)
    except Interrupted:
        return


def _through_ray(errand: Errand, device: str) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    on_gpu, where, stage = device.startswith("cuda"), errand.where, errand.stage
    run_folder = errand.workspace.root / "ray" / f"{stage.label}-{stage.fingerprint}"
    trainer = TorchTrainer(
        _ray_rank,
        train_loop_config={"errand": errand, "device": device},
        torch_config=TorchConfig(backend="nccl" if on_gpu else "gloo", timeout_s=COLLECTIVE_SECONDS),
        scaling_config=ScalingConfig(
            num_workers=where.workers,
            use_gpu=on_gpu,
            resources_per_worker={"CPU": max(1, where.threads)} | ({"GPU": 1} if on_gpu else {}),
        ),
        run_config=RunConfig(
            name=run_folder.name,
            storage_path=str(run_folder.parent),
            failure_config=FailureConfig(max_failures=where.max_failures),
        ),
    )
    try:
        trainer.fit()
    finally:  # Checkpoints are the stage's own: nothing in there is needed again.
        shutil.rmtree(run_folder, ignore_errors=True)


def _ray_rank(config: dict[str, Any]) -> None:
    from ray.train.torch import get_device
    from ray.util import get_current_placement_group

    errand, device = config["errand"], config["device"]
    group = get_current_placement_group()
    if group is not None:
        Post(errand.workspace.path(errand.stage)).note_group(group.id.hex())
    train_rank(errand, str(get_device()) if device.startswith("cuda") else device)


def _local_rank(number: int, errand: Errand, device: str, port: int) -> None:
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(number)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=number,
        world_size=errand.where.workers,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    try:
        train_rank(errand, f"cuda:{number}" if on_gpu else device)
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Rank 0 waits for the ranks of a killed run that have not noticed yet; the others wait for rank 0."""
    with locked(folder / "writer.lock") if rank() == 0 else contextlib.nullcontext():
        from_first(None)
        yield


@contextlib.contextmanager
def _ended(thread: "_Thread", post: Post) -> Iterator[None]:
    """Start the thread, and see the workers off when the block ends with an error."""
    thread.start()
    try:
        yield
    except BaseException:
        post.ask_to_stop()
        thread.join(LAST_WORDS_SECONDS)
        raise


def _pass_on(post: Post, listen: Listen | None) -> None:
    for evaluation in post.news():
        if listen is not None and listen(evaluation):
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
