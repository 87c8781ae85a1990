"""Running means of the loss terms, kept on the device: reading them waits for it, so readings are rare."""

import torch
import torch.distributed as dist
from torch import Tensor

from stillhouse.core.distributed import world_size
from stillhouse.core.types import Terms


class Meter:
    """Sums since the last reading. They are part of the checkpoint: a resumed run logs the same means."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, values: Terms, share: float = 1.0) -> None:
        """Add the values of one micro-batch, which is the fraction ``share`` of a step."""
        for name, value in values.items():
            part = value.detach().float() * share
            self._sums[name] = self._sums[name] + part if name in self._sums else part

    def step(self) -> None:
        """Count one step."""
        self._count += 1

    def read(self) -> dict[str, float]:
        """Return the means over steps and ranks since the last reading; all ranks must read in step."""
        if not self._count:
            return {}
        stacked = torch.stack(list(self._sums.values())) / self._count
        if world_size() > 1:
            dist.all_reduce(stacked)
            stacked /= world_size()
        means = dict(zip(self._sums, stacked.tolist(), strict=True))
        self._sums, self._count = {}, 0
        return means

    def state(self) -> dict[str, object]:
        """Return the current sums."""
        return {"sums": dict(self._sums), "count": self._count}

    def restore(self, sums: dict[str, Tensor], count: int, device: str) -> None:
        """Continue from a checkpoint."""
        self._sums = {name: value.to(device) for name, value in sums.items()}
        self._count = count
