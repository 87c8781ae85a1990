"""A queue of teacher vectors of earlier batches: more negatives, and nothing more to encode.

DistilCSE, arXiv:2112.05638, eq. 5.

B  batch    E  teacher's dimension    M  slots of the bank
"""

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require

EMPTY = -1
"""Row id of a slot that holds nothing yet, or whose text has a newer slot."""

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def among(rows_M: Tensor, rows_B: Tensor) -> Tensor:
    """Tell which of many row ids are among a few, (M,): `torch.isin` in a third of its time."""
    rising_B = rows_B.sort().values
    places_M = torch.searchsorted(rising_B, rows_M).clamp(max=len(rising_B) - 1)
    return rising_B[places_M] == rows_M


class MemoryBank(nn.Module):
    """The newest M teacher vectors with their row ids; the oldest are overwritten first.

    A row is held once: pushing it again empties its old slot, so a bank larger than the corpus does not count
    a negative twice. The state is in buffers, which are saved and restored with the module.

    Under DDP there is one logical bank: every rank pushes the *gathered* keys in the order of the ranks, so
    all ranks hold the same. With accumulation, the keys of a micro-batch are negatives of the next one.

    Args:
        size: M.
        teacher_dim: E.
        precision: ``float32`` or ``bfloat16``: what the vectors are stored in and multiplied in.

    Raises:
        BadInput: ``size`` or ``teacher_dim`` is below 1, or the precision is unknown.
    """

    vectors_ME: Tensor
    rows_M: Tensor
    next_slot: Tensor

    def __init__(self, *, size: int, teacher_dim: int, precision: str = "float32") -> None:
        super().__init__()
        require(size >= 1, "size of a memory bank >= 1", size=size)
        require(teacher_dim >= 1, "teacher_dim of a memory bank >= 1", teacher_dim=teacher_dim)
        require(precision in PRECISIONS, f"precision in {(*PRECISIONS,)}", precision=precision)
        self.size = size
        self.register_buffer("vectors_ME", torch.zeros(size, teacher_dim, dtype=PRECISIONS[precision]))
        self.register_buffer("rows_M", torch.full((size,), EMPTY))
        self.register_buffer("next_slot", torch.tensor(0))

    @torch.no_grad()
    def push(self, keys_BE: Tensor, rows_B: Tensor) -> None:
        """Store a batch, gathered over the ranks, after its loss was computed.

        Args:
            keys_BE: Teacher vectors.
            rows_B: Their row ids, not negative.

        Raises:
            BadInput: The batch is larger than the bank, or the shapes do not fit.
        """
        batch = len(keys_BE)
        require(
            batch <= self.size,
            "memory bank >= batch",
            bank=self.size,
            batch=batch,
            remedy="Raise the size of the bank, or set it to 0 to disable the bank.",
        )
        require(
            keys_BE.shape == (batch, self.vectors_ME.shape[1]) and rows_B.shape == (batch,),
            "shapes of keys and rows = (batch, dim) and (batch,)",
            keys=tuple(keys_BE.shape),
            rows=tuple(rows_B.shape),
            dim=self.vectors_ME.shape[1],
        )
        slots_B = (self.next_slot + torch.arange(batch, device=rows_B.device)) % self.size
        repeated_B = (rows_B[:, None] == rows_B[None, :]).tril(diagonal=-1).any(dim=1)
        # In place: otherwise every step would copy the whole bank. No loss keeps it for its backward pass.
        self.rows_M.masked_fill_(among(self.rows_M, rows_B), EMPTY)
        self.rows_M.index_copy_(0, slots_B, rows_B.masked_fill(repeated_B, EMPTY))
        self.vectors_ME.index_copy_(0, slots_B, keys_BE.to(self.vectors_ME.dtype))
        self.next_slot = (self.next_slot + batch) % self.size
