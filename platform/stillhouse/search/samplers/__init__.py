"""Samplers: one file each, found by file name. A sampler proposes the next point of a search.

A sampler's proposals are a function of the space, the seed and the trials so far, and of nothing else. It
keeps no state: a sweep that was killed and started again proposes what an undisturbed one does.

A module has the functions of `Sampler`, and `NEEDS_RANGES = True` if it searches a file's section
``continuous`` before its grid.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stillhouse.core.modules import load_module, module_names

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from stillhouse.search.space import Space

ATTEMPTS = 32
"""Number of points that a random sampler draws in search of a new one."""
LARGEST_GRID = 5_000_000


@dataclass(frozen=True)
class Search:
    """The state of a search, from which a sampler proposes the next point.

    Attributes:
        space: The search space.
        past: All trials, in the order of their numbers.
        seed: The sweep's seed.
        trials: Number of trials that the sweep will have in all.
        directions: ``maximize`` or ``minimize`` for each objective.
        refused: Whether a point, fixed values included, cannot be tried.
    """

    space: "Space"
    past: "Sequence[FrozenTrial]"
    seed: int
    trials: int
    directions: Sequence[str]
    refused: Callable[[Mapping[str, Any]], object] = lambda point: False


class Sampler(Protocol):
    """The contract of a sampler's module."""

    def check(self, space: "Space") -> None:
        """Refuse a space that the sampler cannot search.

        Raises:
            BadInput: The space does not suit the sampler.
        """
        ...

    def candidates(self, search: Search) -> Iterator[dict[str, Any]]:
        """Yield points in order of preference; `propose` takes the first that was not tried before."""
        ...


def known_samplers() -> list[str]:
    """List the names of all samplers; nothing is imported."""
    return module_names(__path__)


def load_sampler(name: str) -> Sampler:
    """Import a sampler by its name.

    Raises:
        BadInput: Unknown sampler; the message lists the nearest names.
    """
    sampler: Sampler = load_module(__name__, known_samplers(), name, "sampler")
    return sampler
