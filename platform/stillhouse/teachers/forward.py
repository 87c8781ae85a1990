"""A loaded teacher's forward pass over many texts: token ids of a shard in, float32 vectors out."""

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

# Measured with a 6 x 384 teacher: smaller batches cost more per call, larger ones have more padding.
_CPU_BATCH_TOKENS_PER_THREAD = 1024
_GPU_BATCH_TOKENS = 65536


@dataclass(frozen=True)
class Forward:
    """The forward pass of a teacher over many texts.

    On CUDA two batches are in flight: while one is computed, the next is padded and sent, and the vectors of
    the previous one come back. The tests do not cover that part; on other devices batches run one by one.

    Attributes:
        teacher: Maps tokens to vectors (B, E).
        pad_id: Token id that pads the shorter texts of a batch.
        batch_tokens: Tokens per batch, padding included.
        compute: ``float32`` or ``bfloat16``, the precision of the matrix products.
        device: ``cpu``, ``cuda``, ….
    """

    teacher: Callable[[Tokens], Tensor]
    pad_id: int
    batch_tokens: int
    compute: str = "float32"
    device: str = "cpu"

    def __call__(self, ids: Ids, offsets: Offsets) -> Vectors:
        """Compute the vectors of all texts, (N, E), in their order; batches hold texts of similar length.

        Args:
            ids: The concatenated token ids of all texts.
            offsets: The start of each text, and the end of the last.
        """
        lengths = np.diff(offsets)
        kind = torch.device(self.device).type
        vectors_NE: Vectors | None = None
        # One context over all batches, not one per batch: it keeps the weights that it casts.
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
        """Compute the batches one by one, each read when the next one has been started."""
        previous: _Pending | None = None
        for rows in token_batches(lengths, self.batch_tokens):
            started = self._start(np.asarray(rows), pad(ids, offsets[rows], lengths[rows], self.pad_id))
            if previous is not None:
                yield previous.read()
            previous = started
        if previous is not None:
            yield previous.read()

    def _start(self, rows: npt.NDArray[np.int64], tokens: Tokens) -> "_Pending":
        if torch.device(self.device).type != "cuda":
            return _Pending(rows, self.teacher(tokens.to(self.device)).float().cpu())
        # Not covered by tests: page-locked memory in both directions, so that copies overlap with the
        # products.
        pinned = Tokens(tokens.input_ids_BT.pin_memory(), tokens.attention_mask_BT.pin_memory())
        vectors_BE = self.teacher(pinned.to(self.device)).float().to("cpu", non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return _Pending(rows, vectors_BE, copied)


@dataclass(frozen=True)
class _Pending:
    """A batch whose vectors may still be on their way from a GPU."""

    rows: npt.NDArray[np.int64]
    vectors_BE: Tensor
    copied: torch.cuda.Event | None = None

    def read(self) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Return rows and vectors; wait if they have not arrived yet."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.rows, self.vectors_BE.numpy()


def default_batch_tokens(device: str, threads: int) -> int:
    """Return a suitable number of tokens per batch for a device, padding included."""
    on_gpu = torch.device(device).type != "cpu"
    return _GPU_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS_PER_THREAD * max(1, threads)


def cast_products(model: nn.Module, compute: str) -> None:
    """Store the weights of a transformer's matrix products in the precision in which they are used.

    The results are bit-identical to autocast, which would cast the weights again for every batch.
    """
    if compute != "bfloat16":
        return
    from transformers import PreTrainedModel

    for part in model.modules():
        # Modules around a transformer (a projection, a dense layer) may leave autocast.
        if isinstance(part, PreTrainedModel):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    module.to(torch.bfloat16)
