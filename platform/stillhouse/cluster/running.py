"""Whether Ray runs, asked without importing it."""

import sys

from stillhouse.core.errors import BadInput


def ray_runs() -> bool:
    """Return whether this process belongs to a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def require_usable_gpu(device: str) -> None:
    """Refuse a GPU that Ray has reserved for this process and that torch cannot use.

    Raises:
        BadInput: It names the node and what torch says.
    """
    if not device.startswith("cuda") or not ray_runs():
        return
    import ray
    import torch

    if not ray.get_gpu_ids():
        return
    try:
        torch.zeros(1, device=device)
    except (AssertionError, RuntimeError) as error:
        raise BadInput(
            "a node must offer GPUs that torch can use, but of that of node "
            f"{ray.util.get_node_ip_address()} torch says: {str(error).splitlines()[0]}. Install a build of "
            "torch with CUDA and a driver that it knows, or start Ray on that node with --num-gpus=0."
        ) from None
