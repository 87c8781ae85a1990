"""Log-sum-exp over a memory bank whose logits are never all in memory.

A bank of 65 536 vectors beside a batch of 256 has 17 million logits. They are made a tile at a time and
summed while the tile is in the cache, with a running maximum; what the gradient needs, the mean of the keys
under the softmax, is summed in the same pass. Value and gradient are those of `torch.logsumexp` but for the
rounding.

Products are made in the precision of the keys: a processor multiplies bfloat16 several times as quickly as
float32. Exponentials and sums are in the anchors' precision.

B  anchors    E  their dimension    M  keys
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = {"cpu": 2048}
"""Keys a tile: what fits a processor's cache. Elsewhere fewer, larger products are quicker."""
_TILE = 16_384


def streamed_logsumexp(anchors_BE: Tensor, keys_ME: Tensor, hidden_M: Tensor) -> Tensor:
    """``log Σ_j exp(a_i · k_j)`` over the keys that are not hidden, (B,); −inf where all are.

    Args:
        anchors_BE: With the temperature in them. The gradient is theirs alone.
        keys_ME: Not trained.
        hidden_M: Keys that do not count.
    """
    assert not keys_ME.requires_grad, "the keys of a bank are not trained"
    value_B: Tensor = _LogSumExp.apply(anchors_BE, keys_ME, hidden_M)  # type: ignore[no-untyped-call]
    return value_B


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchors_BE: Tensor, keys_ME: Tensor, hidden_M: Tensor) -> Tensor:
        trains = bool(ctx.needs_input_grad[0])
        highest_B = anchors_BE.new_full((len(anchors_BE),), float("-inf"))
        total_B, weighted_BE = torch.zeros_like(highest_B), torch.zeros_like(anchors_BE)
        size, wide = TILE.get(anchors_BE.device.type, _TILE), anchors_BE.dtype
        asked_BE = anchors_BE.to(keys_ME.dtype)
        for keys, hidden in zip(torch.split(keys_ME, size), torch.split(hidden_M, size), strict=True):
            if bool(hidden.any()):
                keys = keys[~hidden]
            if len(keys) == 0:
                continue
            weights = (asked_BE @ keys.T).to(wide)
            higher_B = torch.maximum(highest_B, weights.amax(dim=1))
            weights.sub_(higher_B[:, None]).exp_()
            shrunk_B = (highest_B - higher_B).exp()
            total_B = total_B * shrunk_B + weights.sum(dim=1)
            if trains:
                weighted_BE.mul_(shrunk_B[:, None]).add_(weights.to(keys.dtype) @ keys)
            highest_B = higher_B
        ctx.save_for_backward(weighted_BE / total_B.clamp(min=torch.finfo(total_B.dtype).tiny)[:, None])
        return highest_B + total_B.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_B: Tensor) -> tuple[Tensor, None, None]:
        (mean_BE,) = ctx.saved_tensors
        return grad_B[:, None] * mean_BE, None, None
