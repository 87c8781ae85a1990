"""The nodes that a plan is made for: this machine, or those of `--nodes 8xg6.4xlarge`, and their prices."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stillhouse.cluster.resources import Need, capacity
from stillhouse.core.errors import BadInput, require
from stillhouse.sweeps.planning.rates import EXAMPLE, HERE, Rates


@dataclass(frozen=True)
class Nodes:
    """Some nodes of one kind.

    Attributes:
        count: How many.
        kind: Name of the kind.
        rates: What each has, and how fast it is.
    """

    count: int
    kind: str
    rates: Rates

    def slots(self, need: Need) -> int:
        """Number of trials that these nodes hold at once."""
        shape = {"CPU": self.rates.cpus, "GPU": self.rates.gpus}
        return capacity(need, [(shape, float(self.count))]) // need.workers

    def teachers(self, device: str) -> int:
        """Number of teacher processes: one per GPU, or one per CPU where the teacher runs on CPUs."""
        return int(self.count * (self.rates.gpus if device.startswith("cuda") else self.rates.cpus))


def parse_nodes(written: Sequence[str]) -> list[tuple[int, str]]:
    """Parse the numbers and kinds of `--nodes`.

    Raises:
        BadInput: Something is not written as ``8xg6.4xlarge``, or a kind is named twice.
    """
    found: list[tuple[int, str]] = []
    for text in written:
        parts = re.fullmatch(r"([0-9]+)x(\S+)", text)
        require(
            parts is not None and int(parts[1]) > 0,
            "--nodes must be numbers and kinds of nodes, such as 8xg6.4xlarge",
            nodes=text,
        )
        assert parts is not None
        found.append((int(parts[1]), parts[2]))
    kinds = [kind for _, kind in found]
    require(len(set(kinds)) == len(kinds), "--nodes must name each kind once", nodes=" ".join(written))
    return found


def chosen_nodes(written: Sequence[tuple[int, str]], known: Mapping[str, Rates]) -> list[Nodes]:
    """The nodes with their rates.

    Raises:
        BadInput: The rates of a kind are not known.
    """
    unknown = [kind for _, kind in written if kind not in known]
    require(
        not unknown,
        "the rates of every kind of node must be known",
        unknown=unknown,
        known=sorted({HERE, *known}),
        remedy=EXAMPLE,
    )
    return [Nodes(count, kind, known[kind]) for count, kind in written]


def read_prices(path: Path) -> dict[str, float]:
    """Read the price of an hour of each kind of node, from JSON or YAML.

    Raises:
        BadInput: The file cannot be read, or a price is not a positive number.
    """
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"--prices must name a file of JSON or YAML, but {path}: {error}") from None
    remedy = "Such as {g6.4xlarge: 1.32}."
    require(
        isinstance(content, Mapping) and bool(content),
        "--prices must name a file with a price per hour for each kind of node",
        file=str(path),
        remedy=remedy,
    )
    return {str(kind): checked_price(value, str(kind)) for kind, value in content.items()}


def checked_price(price: Any, kind: str = "") -> float:
    """Return a price per hour.

    Raises:
        BadInput: It is not a positive number.
    """
    number = isinstance(price, int | float) and not isinstance(price, bool) and math.isfinite(price)
    of = f" of {kind}" if kind else ""
    require(number and price > 0, f"the price per hour{of} must be a positive number", price=price)
    return float(price)


def price_of(nodes: Sequence[Nodes], prices: Mapping[str, float]) -> float:
    """The price of an hour of all nodes together.

    Raises:
        BadInput: A kind has no price.
    """
    missing = [each.kind for each in nodes if each.kind not in prices]
    require(not missing, "--prices must name every kind of node", missing=missing, given=sorted(prices))
    return sum(each.count * prices[each.kind] for each in nodes)
