"""Nodes that join a cluster, nodes that it loses, and what its autoscaler does, told while a command runs."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.cluster.nodes import Autoscaler, autoscaler, in_words
from stillhouse.cluster.preemption import draining
from stillhouse.core.console import say, warn
from stillhouse.core.job_clock import duration
from stillhouse.core.repeating import repeated

EVERY_S = 1.0
"""Seconds between two looks at the cluster: a node that is drained may be gone two seconds later."""
_PATIENCE_S = 10.0
"""Seconds that the end of a command waits for a look that goes on."""

_DRAINED = 3
"""Ray's reason for the end of a node that was preempted with a notice (`AUTOSCALER_DRAIN_PREEMPTED`)."""


@dataclass(frozen=True)
class Node:
    """A node that is alive: its id in Ray, its host name and address, and in words what it has for work."""

    id: str
    name: str
    room: str


def nodes_alive() -> list[Node]:
    """The nodes of the cluster that this process has joined."""
    import ray

    return [_described(node) for node in ray.nodes() if node["Alive"]]


def gone_as_announced() -> set[str]:
    """Ids of the nodes that are gone after it was announced that they would be."""
    import ray

    dead = (node for node in ray.nodes() if not node["Alive"])
    return {node["NodeID"] for node in dead if node.get("DeathReason") == _DRAINED}


def _described(node: Mapping[str, Any]) -> Node:
    name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    return Node(node["NodeID"], name, in_words(node["Resources"]))


class Membership:
    """Compares the cluster with the last look at it, and tells what has changed.

    What it asks are `nodes_alive`, `cluster.nodes.autoscaler`, `cluster.preemption.draining` and
    `gone_as_announced`. It calls ``on_join`` with every node that has joined.
    """

    def __init__(
        self,
        nodes: Callable[[], Sequence[Node]] = nodes_alive,
        on_join: Callable[[Node], None] = lambda node: None,
        autoscaler: Callable[[], Autoscaler | None] = autoscaler,
        draining: Callable[[], Mapping[str, float]] = draining,
        announced: Callable[[], Collection[str]] = gone_as_announced,
    ) -> None:
        self.nodes, self.on_join, self.autoscaler = nodes, on_join, autoscaler
        self.draining, self.announced = draining, announced
        self._known = {node.id: node for node in nodes()}
        self._starting: tuple[str, ...] = ()
        self._told = set[str]()

    def look(self) -> None:
        """Tell of each node that has joined or was lost since the last look, and of what was asked for."""
        now = {node.id: node for node in self.nodes()}
        before, self._known = self._known, now
        count = f"{len(now)} node{'s' if len(now) != 1 else ''}"
        gone = before.keys() - now.keys()
        announced = self.announced() if gone else ()
        for id in gone:
            node, how = before[id], "has gone, as was announced" if id in announced else "was lost"
            warn(f"node {node.name} with {node.room} {how}, {count} left: what ran there goes on elsewhere.")
        for id in now.keys() - before.keys():
            say(f"  node {now[id].name} joined with {now[id].room}: {count}")
            self.on_join(now[id])
        for id in self._news(id for id in self.draining() if id in now):
            left = self.draining().get(id, 0.0) - time.time()
            when = f" in {duration(left)}" if left > 0 else ""
            warn(f"node {now[id].name} is about to go{when}: what runs there goes on elsewhere.")
        self._tell_work(self.autoscaler() or Autoscaler())

    def _tell_work(self, now: Autoscaler) -> None:
        """Tell which nodes are being started, and once each what could not be."""
        if now.launching and now.launching != self._starting:
            say(f"  the autoscaler is starting {', '.join(now.launching)}")
        self._starting = now.launching
        for failed in self._news(now.failed):
            warn(f"the autoscaler could not start {failed}: what needs it waits.")
        for room in self._news(in_words(shape) for shape in now.impossible):
            say(f"  no node for {room} can be started now: the autoscaler is at its limit, or has none")

    def _news(self, remarks: Iterable[str]) -> list[str]:
        """Return those that were not reported yet."""
        news = [remark for remark in dict.fromkeys(remarks) if remark not in self._told]
        self._told.update(news)
        return news


def nodes_watched(
    on_join: Callable[[Node], None], *, every_s: float = EVERY_S
) -> contextlib.AbstractContextManager[None]:
    """Tell of nodes that join and leave while the block runs."""
    look = Membership(on_join=on_join).look
    return repeated(look, every_s=every_s, name="nodes", patience_s=_PATIENCE_S)
