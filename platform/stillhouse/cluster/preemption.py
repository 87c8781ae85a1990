"""Nodes that are about to be taken away: spot instances that are reclaimed, nodes that somebody drains.

Ray tells of such a node some seconds before it goes. What runs there writes a checkpoint and ends with
`Preempted`; it goes on from there on another node, and has not failed.
"""

import contextlib
import threading
from collections.abc import Iterator

from stillhouse.cluster.running import ray_runs
from stillhouse.core.repeating import repeated

LOOK_S = 1.0
"""Seconds between two looks at one's own node."""
RETRIES = 10
"""Times that a task is started again after it was preempted, or its process was lost."""


class Preempted(Exception):
    """The node is about to go; the work is checkpointed, and goes on elsewhere."""


def draining() -> dict[str, float]:
    """Nodes that are about to go, by id: when each does, in seconds since 1970, or 0 if that is not known."""
    from ray._private.state import state

    return {node: milliseconds / 1000 for node, milliseconds in state.get_draining_nodes().items()}


@contextlib.contextmanager
def leaving() -> Iterator[threading.Event]:
    """Yield an event that is set as soon as the node of this process is about to go.

    Outside of Ray, which is not imported for it, the event is never set.
    """
    soon = threading.Event()
    if not ray_runs():
        yield soon
        return
    import ray

    own = ray.get_runtime_context().get_node_id()

    def look() -> None:
        if not soon.is_set() and own in draining():
            soon.set()

    with repeated(look, every_s=LOOK_S, name="preemption"):
        yield soon
