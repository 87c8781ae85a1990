"""Sums over a memory bank whose logits are never all in memory.

A bank of 65 536 vectors beside a batch of 256 has 17 million logits. They are made a tile at a time and
summed while the tile is in the cache; what the gradient needs is summed in the same pass.

B  anchors    E  their dimension    M  keys    T  keys of a tile
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = {"cpu": 2048}
"""Keys a tile: what fits a processor's cache. Elsewhere fewer, larger products are quicker."""
_TILE = 16_384


def streamed_logsumexp(anchors_BE: Tensor, keys_ME: Tensor, hidden_M: Tensor) -> Tensor:
    """``log Σ_j exp(a_i · k_j)`` over the keys that are not hidden, (B,); −inf where all are.

    Value and gradient are those of `torch.logsumexp` but for the rounding. Products are made in
    the precision of the keys: a processor multiplies bfloat16 several times as quickly as float32.
    Exponentials and sums are in the anchors' precision.

    Args:
        anchors_BE: With the temperature in them. The gradient is theirs alone.
        keys_ME: Not trained.
        hidden_M: Keys that do not count.
    """
    assert not keys_ME.requires_grad, "the keys of a bank are not trained"
    value_B: Tensor = _LogSumExp.apply(anchors_BE, keys_ME, hidden_M)  # type: ignore[no-untyped-call]
    return value_B


def streamed_sum(
    of_tile: Callable[..., Tensor], keys_ME: Tensor, hidden_M: Tensor, *trained: Tensor
) -> Tensor:
    """``Σ of_tile(keys_TE, *trained)`` over tiles of the keys that are not hidden; 0 where all are.

    Args:
        of_tile: One number of a tile; it is differentiated tile by tile, once.
        keys_ME: Not trained.
        hidden_M: Keys that do not count.
        trained: What the gradient is wanted of, given to every call.
    """
    assert not keys_ME.requires_grad, "the keys of a bank are not trained"
    value: Tensor = _Sum.apply(of_tile, keys_ME, hidden_M, *trained)  # type: ignore[no-untyped-call]
    return value


def _shown(keys_ME: Tensor, hidden_M: Tensor) -> Iterator[Tensor]:
    """The keys that are not hidden, a tile at a time."""
    size = TILE.get(keys_ME.device.type, _TILE)
    for keys_TE, hidden_T in zip(torch.split(keys_ME, size), torch.split(hidden_M, size), strict=True):
        if bool(hidden_T.any()):
            keys_TE = keys_TE[~hidden_T]
        if len(keys_TE):
            yield keys_TE


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchors_BE: Tensor, keys_ME: Tensor, hidden_M: Tensor) -> Tensor:
        trains = bool(ctx.needs_input_grad[0])
        highest_B = anchors_BE.new_full((len(anchors_BE),), float("-inf"))
        total_B, weighted_BE = torch.zeros_like(highest_B), torch.zeros_like(anchors_BE)
        wide, asked_BE = anchors_BE.dtype, anchors_BE.to(keys_ME.dtype)
        for keys in _shown(keys_ME, hidden_M):
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


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, of_tile: Callable[..., Tensor], keys_ME: Tensor, hidden_M: Tensor, *trained: Tensor
    ) -> Tensor:
        wanted = ctx.needs_input_grad[3:]
        held = [each.detach().requires_grad_(wants) for each, wants in zip(trained, wanted, strict=True)]
        asked = [each for each in held if each.requires_grad]
        total, gradients = trained[0].new_zeros(()), [torch.zeros_like(each) for each in asked]
        for keys_TE in _shown(keys_ME, hidden_M):
            with torch.set_grad_enabled(bool(asked)):
                value = of_tile(keys_TE, *held)
            total = total + value.detach()
            for whole, part in zip(
                gradients, torch.autograd.grad(value, asked) if asked else (), strict=True
            ):
                whole.add_(part)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        return (
            None,
            None,
            None,
            *(grad * next(saved) if wants else None for wants in ctx.needs_input_grad[3:]),
        )
