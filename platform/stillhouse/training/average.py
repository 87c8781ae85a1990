"""A moving average of the weights, which is measured, kept and exported in their place."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

FOLLOWS = 10
"""The average follows the first weights closely: after step t its decay is at most (1 + t) / (10 + t)."""


class WeightAverage:
    """The exponential moving average of the trained weights of a module.

    After step t, ``a ← β a + (1 − β) w`` with ``β = min(decay, (1 + t) / (10 + t))``, so that the untrained
    weights are forgotten early. Buffers, such as a memory bank, are not averaged. The weights of all ranks
    are equal, and so are their averages, without any communication.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        # A weight with two names has one average.
        trained = (weight for weight in module.parameters() if weight.requires_grad)
        averages = {weight: weight.detach().clone() for weight in trained}
        self._pairs = list(averages.items())
        named = module.named_parameters(remove_duplicate=False)
        self._averages = {name: averages[weight] for name, weight in named if weight.requires_grad}
        self._decay = decay

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 1."""
        decay = min(self._decay, (1 + step) / (FOLLOWS + step))
        for weight, average in self._pairs:
            average.lerp_(weight, 1 - decay)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Run a block in which the module has the averages; then it has its weights again, bit for bit."""
        weights = [weight.detach().clone() for weight, _ in self._pairs]
        self._write([average for _, average in self._pairs])
        try:
            yield
        finally:
            self._write(weights)

    def state(self) -> dict[str, Tensor]:
        """Return the averages by the names of the weights."""
        return dict(self._averages)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over the averages that `state` returned."""
        for name, average in self._averages.items():
            average.copy_(state[name])

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        for (weight, _), value in zip(self._pairs, values, strict=True):
            weight.copy_(value)


def averaged(part: str, weights: Mapping[str, Tensor], averages: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the ``student`` or the ``objective`` with the averages in place of its weights."""
    return {name: averages.get(f"{part}.{name}", weight) for name, weight in weights.items()}
