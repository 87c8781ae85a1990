"""Number of trials at once on a cluster whose nodes come and go, and work that waits for room there."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from stillhouse.cluster.nodes import (
    Autoscaler,
    Nodes,
    autoscaler,
    in_words,
    kinds_in_words,
    nodes_to_come,
    nodes_up,
)
from stillhouse.cluster.resources import Need, capacity, grows
from stillhouse.core.console import doing, say
from stillhouse.core.errors import BadInput, require
from stillhouse.core.job_clock import duration
from stillhouse.core.repeating import repeated

LAUNCH_S = 900.0
"""How long to wait for the nodes of an autoscaler: a GPU node takes minutes to start."""
JOIN_S = 20.0
"""How long to wait for nodes that somebody else starts."""
_REFUSED_S = 10.0
"""How long the autoscaler must call a need impossible, which it also does for a moment at its limit."""
_LOOK_S = 2.0
_BETWEEN_S = 5.0
"""Seconds without a request for room that end a wait: Ray Train takes its request back now and then."""
_FEW = 4
"""Trials that may wait for the first nodes of a cluster whose limits are known."""
_REMEDY = "Lower --workers or the resources of a worker, or use a larger cluster."


class Slots:
    """Number of trials that run at once: as many as fit on the nodes there are, up to a limit; 0 is none.

    On a cluster that grows, more trials are begun than fit now. They wait for nodes, which is how an
    autoscaler learns that nodes are needed: if its limits are known twice as many as fit, at most those that
    fit on the grown cluster; otherwise half as many again, and at least one.
    """

    def __init__(self, need: Need, limit: int = 0) -> None:
        self.need, self.limit = need, limit
        self._to_come = nodes_to_come()
        self._grows = grows()
        self._number, self._seen = 0, -math.inf

    def __call__(self) -> int:
        """The number now, at least 1."""
        if time.monotonic() - self._seen >= _LOOK_S:
            self._number, self._seen = self._count(), time.monotonic()
        return self._number

    def _count(self) -> int:
        fit = capacity(self.need, nodes_up()) // self.need.workers
        if self._to_come:
            grown = capacity(self.need, self._to_come) // self.need.workers
            begun = max(fit, min(grown, max(_FEW, 2 * fit)))
        else:
            begun = fit + max(1, fit // 2) if self._grows else fit
        begun = max(1, begun)
        return min(begun, self.limit) if self.limit else begun

    def __getstate__(self) -> dict[str, Any]:
        """State without what was seen: Tune pickles the searcher that asks this for a number."""
        return {**self.__dict__, "_number": 0, "_seen": -math.inf}


def wait_for_room(need: Need, seconds: float | None = None, *, joined: bool = True) -> None:
    """Wait until the workers of one trial fit on the nodes of the cluster, and ask its autoscaler for them.

    Where the autoscaler's limits are known and suffice nothing is waited for: trials bring their nodes.

    Args:
        need: Resources of one trial.
        seconds: How long to wait; None takes `LAUNCH_S` with an autoscaler, else `JOIN_S`.
        joined: Whether the cluster is one that other nodes may join, and not this process's own.

    Raises:
        BadInput: The nodes did not come in time, or none that may come has these resources.
    """
    require((seconds or 0) >= 0, "--wait-for-nodes >= 0", wait_for_nodes=seconds)
    up, to_come = nodes_up(), nodes_to_come()
    if max(capacity(need, up), capacity(need, to_come)) >= need.workers:
        return
    if not joined or (to_come and seconds is None):
        _refuse(need, to_come or up)
    _wait(need, up, (LAUNCH_S if grows() else JOIN_S) if seconds is None else seconds, autoscaler())


def _refuse(need: Need, nodes: Nodes, **more: Any) -> None:
    fit = capacity(need, nodes)
    require(
        fit >= need.workers,
        "the workers of a trial must fit on the cluster",
        workers=need.workers,
        each=in_words(need.worker),
        fit=fit,
        nodes=kinds_in_words(nodes),
        **more,
        remedy=_REMEDY,
    )


def _wait(need: Need, up: Nodes, seconds: float, found: Autoscaler | None) -> None:
    """Reserve the room until it is there, which asks the autoscaler for nodes, and free it again."""
    several = f"{need.workers} x " if need.nested else ""
    asked = "" if found is None else "; the autoscaler was asked"
    say(
        f"  waiting up to {duration(seconds)} for nodes: a trial needs {several}{in_words(need.worker)}, the "
        f"nodes of the cluster are {kinds_in_words(up)}{asked}"
    )
    began, refused_since = time.monotonic(), math.inf
    with _reserved(need) as group, doing("waiting for nodes"):
        while not group.wait(_LOOK_S):
            now, found = time.monotonic(), autoscaler()
            impossible = found is not None and _bundle(need) in found.impossible
            refused_since = min(refused_since, now) if impossible else math.inf
            if now - refused_since >= _REFUSED_S:
                _refuse(need, nodes_up(), autoscaler="it has no such nodes, or is at its limit")
            if now - began >= seconds:
                raise BadInput(
                    f"the workers of a trial must fit on the cluster, but no nodes for {several}"
                    f"{in_words(need.worker)} came within {duration(seconds)}"
                    f"{f'; {found.in_words}' if found else ''}. The nodes are {kinds_in_words(nodes_up())}. "
                    "Wait longer with --wait-for-nodes SECONDS, or lower --workers or the resources of a "
                    "worker."
                )
    say(f"  the nodes have come, after {duration(time.monotonic() - began)}")


class RoomWatch:
    """Notices that the workers of a run have to wait for room on the cluster, and that they have it.

    A run is known by the shape of what it asks for. Beside another run of this shape that waits, one whose
    workers are being started is taken to wait as well, until it is known where they run.

    Args:
        need: Resources of the run.
        group: Returns the placement group that its workers were last known to run in.
        tell: Called with when a wait began, and with when it ended or None, as seconds since the epoch.
    """

    def __init__(
        self, need: Need, group: Callable[[], str], tell: Callable[[float, float | None], None]
    ) -> None:
        self.need, self.group, self.tell = need, group, tell
        self._began: float | None = None
        self._seen = 0.0

    def look(self) -> None:
        """Compare the cluster with the last look at it, and tell what has changed."""
        now = time.time()
        if self._asks():
            self._seen = now
            if self._began is None:
                self._began = now
                self.tell(now, None)
        elif self._began is not None and now - self._seen >= _BETWEEN_S:
            self.tell(self._began, self._seen)
            self._began = None

    def _asks(self) -> bool:
        """Return whether a request for such workers is pending, and this run has none that run."""
        from ray.util import placement_group_table

        groups, wanted = placement_group_table(), [_bundle(self.need)] * self.need.workers
        if groups.get(self.group(), {}).get("state") == "CREATED":
            return False
        pending = (group["bundles"] for group in groups.values() if group["state"] == "PENDING")
        return any(list(bundles.values()) == wanted for bundles in pending)


def room_watched(watch: RoomWatch) -> contextlib.AbstractContextManager[None]:
    """Let a watch look again and again while the block runs."""
    return repeated(watch.look, every_s=_LOOK_S, name="room")


@contextlib.contextmanager
def _reserved(need: Need) -> Iterator[Any]:
    """A placement group for the workers of a trial: pending ones are demand, and end with this process."""
    import ray

    group = ray.util.placement_group([_bundle(need)] * need.workers)
    try:
        yield group
    finally:
        ray.util.remove_placement_group(group)


def _bundle(need: Need) -> dict[str, float]:
    """Return the resources that one worker reserves; Ray takes no zeros."""
    return {name: amount for name, amount in need.worker.items() if amount}
