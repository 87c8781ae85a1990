"""A loaded teacher's forward pass over many texts: tokens of a shard in, float32 vectors out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stillhouse.core.tokenizing import Ids, Offsets, pad, token_batches
from stillhouse.core.types import Tokens
from stillhouse.students.cpu.products import quick_products

Vectors = npt.NDArray[np.float32]

# Measured with a 6 x 384 teacher: smaller ones pay more a call, larger ones pad more.
_CPU_BATCH_TOKENS_A_THREAD = 1024
_GPU_BATCH_TOKENS = 65536


@dataclass(frozen=True)
class Forward:
    """How a teacher runs.

    On CUDA two batches are in flight: while one is computed, the next is padded and sent, and the vectors of
    the one before come back. That part is untested, for want of a GPU; elsewhere batches follow each other.

    Attributes:
        teacher: Tokens to vectors (B, E).
        pad_id: What shorter texts of a batch are filled up with.
        batch_tokens: Padded tokens a batch.
        compute: ``float32`` or ``bfloat16``, the precision of the matrix products.
        device: ``cpu``, ``cuda``, ….
    """

    teacher: Callable[[Tokens], Tensor]
    pad_id: int
    batch_tokens: int
    compute: str = "float32"
    device: str = "cpu"

    def __call__(self, ids: Ids, offsets: Offsets) -> Vectors:
        """Vectors of all texts, (N, E): longest first, in batches of about equally long ones, back in order.

        Args:
            ids: The token ids of all texts, end to end.
            offsets: Where each text begins, and the end.
        """
        lengths = np.diff(offsets)
        kind = torch.device(self.device).type
        vectors_NE: Vectors | None = None
        # One context over all batches, not one a batch: it keeps what it casts.
        precision = torch.autocast(kind, torch.bfloat16, enabled=self.compute == "bfloat16")
        with torch.inference_mode(), precision, quick_products(self.device, self.compute):
            for rows, vectors_BE in self._batches(ids, offsets, lengths):
                if vectors_NE is None:
                    vectors_NE = np.empty((len(lengths), vectors_BE.shape[1]), np.float32)
                vectors_NE[rows] = vectors_BE
        assert vectors_NE is not None, "a shard has texts"
        return vectors_NE

    def _batches(
        self, ids: Ids, offsets: Offsets, lengths: Offsets
    ) -> Iterator[tuple[npt.NDArray[np.int64], Vectors]]:
        """The vectors of one batch after the other, each read when the next is under way."""
        before: _Said | None = None
        for rows in token_batches(lengths, self.batch_tokens):
            said = self._say(np.asarray(rows), pad(ids, offsets[rows], lengths[rows], self.pad_id))
            if before is not None:
                yield before.read()
            before = said
        if before is not None:
            yield before.read()

    def _say(self, rows: npt.NDArray[np.int64], tokens: Tokens) -> "_Said":
        if torch.device(self.device).type != "cuda":
            return _Said(rows, self.teacher(tokens.to(self.device)).float().cpu())
        # Not run by any test here: page-locked memory both ways, so that copies overlap with the products.
        pinned = Tokens(tokens.input_ids_BT.pin_memory(), tokens.attention_mask_BT.pin_memory())
        vectors_BE = self.teacher(pinned.to(self.device)).float().to("cpu", non_blocking=True)
        there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        there.record()
        return _Said(rows, vectors_BE, there)


@dataclass(frozen=True)
class _Said:
    """A batch whose vectors may still be on their way from a GPU."""

    rows: npt.NDArray[np.int64]
    vectors_BE: Tensor
    there: torch.cuda.Event | None = None

    def read(self) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Rows and vectors; waits where they have not come yet."""
        if self.there is not None:
            self.there.synchronize()
        return self.rows, self.vectors_BE.numpy()


def usual_batch_tokens(device: str, threads: int) -> int:
    """Padded tokens a batch, what suits the device."""
    on_gpu = torch.device(device).type != "cpu"
    return _GPU_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS_A_THREAD * max(1, threads)


def cast_products(model: nn.Module, compute: str) -> None:
    """Keep the weights of a transformer's matrix products in the precision in which they are used.

    The same bits as autocast, which would cast them anew for every batch.
    """
    if compute != "bfloat16":
        return
    from transformers import PreTrainedModel

    for part in model.modules():
        # What stands around a transformer (a projection, a dense layer) may leave autocast.
        if isinstance(part, PreTrainedModel):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    module.to(torch.bfloat16)
