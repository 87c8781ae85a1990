"""Whether Ray runs, asked without importing it."""

import sys


def ray_runs() -> bool:
    """Whether this process belongs to a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
