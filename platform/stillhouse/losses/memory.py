"""A queue of teacher vectors of earlier batches: more negatives, nothing to encode.

DistilCSE, arXiv:2112.05638, eq. 5.

M  slots of the bank
"""

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require

EMPTY = -1
"""The row id of a slot that holds nothing yet, or whose text stands in a newer slot."""


def among(rows_M: Tensor, rows_B: Tensor) -> Tensor:
    """Which of many rows are among few, (M,), as `torch.isin` has it, in a third of its time."""
    rising_B = rows_B.sort().values
    places_M = torch.searchsorted(rising_B, rows_M).clamp(max=len(rising_B) - 1)
    return rising_B[places_M] == rows_M


class MemoryBank(nn.Module):
    """The newest M teacher vectors with their row ids; the oldest are overwritten first.

    A row is held once: pushing it again empties its old slot, so a bank larger than the corpus does not count
    a negative twice. The state is in buffers, saved and restored with the module.

    Under DDP there is one logical bank: every rank pushes the *gathered* keys, in the order of the ranks, and
    so holds the same. With accumulation every micro-batch pushes its keys and is a negative of the next.

    Args:
        size: M.
        dim: Of the vectors.
        dtype: What they are held in.

    Raises:
        BadInput: ``size`` or ``dim`` below 1.
    """

    vectors_ME: Tensor
    rows_M: Tensor
    next_slot: Tensor

    def __init__(self, size: int, dim: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        require(size >= 1, "size of a memory bank >= 1", size=size)
        require(dim >= 1, "dim of a memory bank >= 1", dim=dim)
        self.size = size
        self.register_buffer("vectors_ME", torch.zeros(size, dim, dtype=dtype))
        self.register_buffer("rows_M", torch.full((size,), EMPTY))
        self.register_buffer("next_slot", torch.tensor(0))

    @torch.no_grad()
    def push(self, keys_BE: Tensor, rows_B: Tensor) -> None:
        """Store a batch, gathered over the ranks, after its loss was computed.

        Args:
            keys_BE: Teacher vectors.
            rows_B: Their row ids, not negative.

        Raises:
            BadInput: A batch larger than the bank, or shapes that do not fit.
        """
        batch = len(keys_BE)
        require(
            batch <= self.size,
            "memory bank >= batch",
            bank=self.size,
            batch=batch,
            remedy="Raise the bank's size, or set it to 0 to go without.",
        )
        require(
            keys_BE.shape == (batch, self.vectors_ME.shape[1]) and rows_B.shape == (batch,),
            "keys (batch, dim) and rows (batch,) fit the bank",
            keys=tuple(keys_BE.shape),
            rows=tuple(rows_B.shape),
            dim=self.vectors_ME.shape[1],
        )
        slots_B = (self.next_slot + torch.arange(batch, device=rows_B.device)) % self.size
        repeated_B = (rows_B[:, None] == rows_B[None, :]).tril(diagonal=-1).any(dim=1)
        # In place, or every step would copy the whole bank: the losses keep nothing of it for their backward.
        self.rows_M.masked_fill_(among(self.rows_M, rows_B), EMPTY)
        self.rows_M.index_copy_(0, slots_B, rows_B.masked_fill(repeated_B, EMPTY))
        self.vectors_ME.index_copy_(0, slots_B, keys_BE.to(self.vectors_ME.dtype))
        self.next_slot = (self.next_slot + batch) % self.size
