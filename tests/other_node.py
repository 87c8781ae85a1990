"""A node of a cluster in one process: what is called there is pickled, and may have a disk of its own."""

import pickle
from pathlib import Path
from typing import Any

from ray import cloudpickle

from stillhouse.cluster.resources import Need


class OtherNode:
    """A node of a cluster, as far as a function and what it is given must survive the way there.

    Args:
        root: The root, which is another folder of the same name on this node; None for the driver's own.

    Attributes:
        used: The resources of every call.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self.used: list[Need] = []

    def __call__(self, function: Any, *arguments: Any, need: Need) -> Any:
        self.used.append(need)
        there, given = pickle.loads(cloudpickle.dumps((function, arguments)))
        if self.root is None:
            return there(*given)
        drivers, own = self.root.with_name("of-the-driver"), self.root.with_name("of-the-node")
        own.mkdir(exist_ok=True)
        self.root.rename(drivers)
        own.rename(self.root)
        try:
            return there(*given)
        finally:
            self.root.rename(own)
            drivers.rename(self.root)
