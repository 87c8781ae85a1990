"""How the ranks that Ray Train starts on one machine find each other: by a file.

Torch's usual meeting point is a store that the first rank opens on a port. It listens on every interface, and
no setting binds it to one. Ranks of one machine need no port.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
import torch.distributed as dist
from ray.train.torch import TorchConfig

from stillhouse.core.machine import ranks_on_loopback, variables_set


def torch_config(backend: str, timeout_s: int, folder: Path) -> TorchConfig:
    """Return the configuration with which Ray Train connects the ranks of a stage.

    The node of a local Ray has the address 127.0.0.1, so all ranks run on this machine and meet by a file.
    On any other cluster they meet at a port of the first rank's machine. A collective operation that takes
    longer than the timeout has failed.
    """
    if ray.util.get_node_ip_address() != "127.0.0.1":
        return TorchConfig(backend=backend, timeout_s=timeout_s)
    return MeetByFile(backend=backend, timeout_s=timeout_s, folder=str(folder))


@dataclass
class MeetByFile(TorchConfig):  # type: ignore[misc]
    """Ray Train's configuration of torch for ranks that meet by a file and exchange data on loopback."""

    folder: str = ""

    @property
    def backend_cls(self) -> type:
        """The backend that starts and ends the process group."""
        return _FileBackend


class _FileBackend(TorchConfig().backend_cls):  # type: ignore[misc]
    """Ray Train's backend for torch, except for how the ranks find each other."""

    def on_start(self, worker_group: Any, backend_config: MeetByFile) -> None:
        """Start the process group, with a new file each time: an earlier one may name ended ranks."""
        meeting = Path(backend_config.folder).resolve() / f"ranks-{uuid4().hex}"
        meeting.parent.mkdir(parents=True, exist_ok=True)
        size = len(worker_group)
        arguments = (str(meeting), size, backend_config.backend, backend_config.timeout_s)
        ray.get([worker_group.execute_single_async(rank, _meet, rank, *arguments) for rank in range(size)])


def _meet(rank: int, meeting: str, size: int, backend: str, timeout_s: int) -> None:
    """Join the process group as one rank; runs in the rank's process."""
    timeout = timedelta(seconds=timeout_s)
    store = dist.FileStore(meeting, size)  # type: ignore[attr-defined]
    store.set_timeout(timeout)
    with variables_set(ranks_on_loopback()):
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
