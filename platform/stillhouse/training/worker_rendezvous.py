"""How the ranks of a local Ray find each other: by a file, because the store of torch listens everywhere."""

import tempfile
import uuid
from pathlib import Path
from typing import Any


def torch_config(backend: str, timeout_s: int) -> Any:
    """Return the `TorchConfig` with which Ray Train connects the ranks.

    On a local Ray, whose only node has the address 127.0.0.1, the ranks meet by a file of their machine. A
    cluster's ranks meet at a port of the first one's machine, which listens on every interface.

    Args:
        backend: ``gloo`` or ``nccl``.
        timeout_s: Seconds after which a collective operation has failed.
    """
    import ray
    from ray.train.torch import TorchConfig

    local = ray.util.get_node_ip_address() == "127.0.0.1"
    return (_config_by_file() if local else TorchConfig)(backend=backend, timeout_s=timeout_s)


def _config_by_file() -> Any:
    import ray
    from ray.train.torch import TorchConfig
    from ray.train.torch.config import (
        _set_torch_distributed_env_vars,
        _setup_torch_process_group,
        _TorchBackend,
    )

    class FileBackend(_TorchBackend):  # type: ignore[misc]
        """Connects the ranks by a new file for every start: one of an earlier start would hold its ranks."""

        def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
            """Start the process group on every worker."""
            meeting = Path(tempfile.gettempdir()) / f"stillhouse-ranks-{uuid.uuid4().hex}"
            worker_group.execute(_set_torch_distributed_env_vars)
            started = [
                worker_group.execute_single_async(
                    rank,
                    _setup_torch_process_group,
                    backend=backend_config.backend,
                    world_rank=rank,
                    world_size=len(worker_group),
                    init_method=f"file://{meeting}",
                    timeout_s=backend_config.timeout_s,
                )
                for rank in range(len(worker_group))
            ]
            ray.get(started)

    class ByFile(TorchConfig):  # type: ignore[misc]
        """The configuration that names this backend."""

        @property
        def backend_cls(self) -> type:
            return FileBackend

    return ByFile
