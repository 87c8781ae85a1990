"""A loaded teacher's forward pass over many texts: token ids of a shard in, float32 vectors out."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stillhouse.core.console import say
from stillhouse.core.devices import on_device
from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import Ids, Offsets, pad, token_batches
from stillhouse.core.types import Tokens
from stillhouse.students.cpu.products import quick_products

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Tokens], "Tensor | Later"]
"""A teacher as a function from tokens to vectors (B, E), or to where they will be."""

# Measured with a 6 x 384 teacher: smaller batches cost more per call, larger ones have more padding.
_CPU_BATCH_TOKENS_PER_THREAD = 1024
_GPU_BATCH_TOKENS = 65536


@dataclass(frozen=True)
class Later:
    """The vectors of a batch that is still being computed: ``read`` waits for them, (B, E)."""

    read: Callable[[], Tensor]


@dataclass
class Forward:
    """The forward pass of a teacher over many texts.

    On CUDA two batches are in flight: while one is computed, the next is padded and sent, and the vectors of
    the previous one come back. The tests do not cover that part; on other devices PyTorch runs batches one by
    one. A runtime that computes several batches at the same time returns `Later`.

    Attributes:
        teacher: Maps tokens to vectors (B, E).
        pad_id: Token id that pads the shorter texts of a batch.
        batch_tokens: Tokens per batch, padding included; halved where the memory of a GPU does not hold them.
        compute: ``float32`` or ``bfloat16``, the precision of the matrix products.
        device: ``cpu``, ``cuda``, ….
        ahead: Number of batches that are started before the vectors of the first of them are read.
        quick: Whether float32 products on a CPU are computed by `students.cpu.products`; a compiled teacher
            computes its own.
    """

    teacher: Encode
    pad_id: int
    batch_tokens: int
    compute: str = "float32"
    device: str = "cpu"
    ahead: int = 1
    quick: bool = True

    def __call__(self, ids: Ids, offsets: Offsets, progress: Callable[[int], None] | None = None) -> Vectors:
        """Compute the vectors of all texts, (N, E), in their order; batches hold texts of similar length.

        Args:
            ids: The concatenated token ids of all texts.
            offsets: The start of each text, and the end of the last.
            progress: Called after each batch but the last with the share of the tokens done, in texts.

        Raises:
            BadInput: The memory of the GPU does not hold a single text.
        """
        while True:
            try:
                return self._vectors(ids, offsets, progress)
            except torch.OutOfMemoryError:
                longest = int(np.diff(offsets).max())
                if self.batch_tokens <= longest:
                    raise BadInput(
                        f"the memory of {self.device} must hold the teacher and one text of {longest:,} "
                        "tokens, but does not. Use a GPU with more memory, a smaller teacher or a lower "
                        "max_length, or give the GPU to fewer processes."
                    ) from None
                self.batch_tokens = max(longest, self.batch_tokens // 2)
            torch.cuda.empty_cache()
            say(
                f"  the memory of {self.device} is full: going on with {self.batch_tokens:,} tokens per batch"
            )

    def _vectors(self, ids: Ids, offsets: Offsets, progress: Callable[[int], None] | None) -> Vectors:
        lengths = np.diff(offsets)
        kind = torch.device(self.device).type
        vectors_NE: Vectors | None = None
        done = 0
        # One context over all batches, not one per batch: it keeps the weights that it casts.
        precision = torch.autocast(kind, torch.bfloat16, enabled=self.compute == "bfloat16")
        products = quick_products(self.device, self.compute) if self.quick else contextlib.nullcontext()
        with on_device(self.device), torch.inference_mode(), precision, products:
            for rows, vectors_BE in self._batches(ids, offsets, lengths):
                if vectors_NE is None:
                    vectors_NE = np.empty((len(lengths), vectors_BE.shape[1]), np.float32)
                vectors_NE[rows] = vectors_BE
                done += int(lengths[rows].sum())
                if progress is not None and done < len(ids):
                    progress(len(lengths) * done // len(ids))
        assert vectors_NE is not None, "a shard has texts"
        return vectors_NE

    def _batches(
        self, ids: Ids, offsets: Offsets, lengths: Offsets
    ) -> Iterator[tuple[npt.NDArray[np.int64], Vectors]]:
        """Start the batches in order, and read each when ``ahead`` further ones have been started."""
        started: deque[_Pending] = deque()
        for rows in token_batches(lengths, self.batch_tokens):
            tokens = pad(ids, offsets[rows], lengths[rows], self.pad_id)
            started.append(self._start(np.asarray(rows), tokens))
            if len(started) > self.ahead:
                yield started.popleft().read()
        for pending in started:
            yield pending.read()

    def _start(self, rows: npt.NDArray[np.int64], tokens: Tokens) -> "_Pending":
        if torch.device(self.device).type != "cuda":
            found = self.teacher(tokens.to(self.device))
            return _Pending(rows, found if isinstance(found, Later) else found.float().cpu())
        # Not covered by tests: page-locked memory in both directions, so that copies overlap with the
        # products.
        pinned = Tokens(tokens.input_ids_BT.pin_memory(), tokens.attention_mask_BT.pin_memory())
        found_BE = self.teacher(pinned.to(self.device))
        assert isinstance(found_BE, Tensor), "on a GPU PyTorch runs the teacher"
        vectors_BE = found_BE.float().to("cpu", non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
        return _Pending(rows, vectors_BE, copied)


@dataclass(frozen=True)
class _Pending:
    """A batch whose vectors may still be computed, or on their way from a GPU."""

    rows: npt.NDArray[np.int64]
    vectors_BE: Tensor | Later
    copied: torch.cuda.Event | None = None

    def read(self) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Return rows and vectors; wait if they have not arrived yet."""
        if self.copied is not None:
            self.copied.synchronize()
        vectors_BE = self.vectors_BE.read() if isinstance(self.vectors_BE, Later) else self.vectors_BE
        return self.rows, vectors_BE.numpy()


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
