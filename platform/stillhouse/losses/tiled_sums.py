"""Sums over a memory bank, whose logits are never all in memory at once.

A bank of 65 536 vectors and a batch of 256 give 17 million logits. They are computed one tile at a time and
summed while the tile is in the cache; what the gradient needs is summed in the same pass.

B  anchors    E  their dimension    M  keys    T  keys in a tile
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = {"cpu": 2048}
"""Keys per tile by kind of device: what fits the cache. Elsewhere, fewer and larger products are faster."""
_TILE = 16_384


def streamed_logsumexp(anchors_BE: Tensor, keys_ME: Tensor, hidden_M: Tensor) -> Tensor:
    """Compute ``log Σ_j exp(a_i · k_j)`` over the keys that are not hidden, (B,); −inf if all are.

    Value and gradient are those of `torch.logsumexp` up to rounding. Products are computed in the precision
    of the keys, since a CPU multiplies bfloat16 several times as fast as float32. Exponentials and sums are
    in the precision of the anchors.

    Args:
        anchors_BE: Anchors, already divided by the temperature; only they receive a gradient.
        keys_ME: Keys, which are not trained.
        hidden_M: Which keys do not count.
    """
    assert not keys_ME.requires_grad, "the keys of a bank are not trained"
    value_B: Tensor = _LogSumExp.apply(anchors_BE, keys_ME, hidden_M)  # type: ignore[no-untyped-call]
    return value_B


def streamed_sum(
    of_tile: Callable[..., Tensor], keys_ME: Tensor, hidden_M: Tensor, *trained: Tensor
) -> Tensor:
    """Compute ``Σ of_tile(keys_TE, *trained)`` over tiles of the keys that are not hidden; 0 if all are.

    Args:
        of_tile: Function of a tile that returns a scalar; it is differentiated tile by tile, once.
        keys_ME: Keys, which are not trained.
        hidden_M: Which keys do not count.
        trained: Tensors that receive a gradient, passed to every call.
    """
    assert not keys_ME.requires_grad, "the keys of a bank are not trained"
    value: Tensor = _Sum.apply(of_tile, keys_ME, hidden_M, *trained)  # type: ignore[no-untyped-call]
    return value


def _shown(keys_ME: Tensor, hidden_M: Tensor) -> Iterator[Tensor]:
    """Yield the keys that are not hidden, one tile at a time."""
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
        dtype, narrow_BE = anchors_BE.dtype, anchors_BE.to(keys_ME.dtype)
        for keys in _shown(keys_ME, hidden_M):
            weights = (narrow_BE @ keys.T).to(dtype)
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
        needed = ctx.needs_input_grad[3:]
        inputs = [each.detach().requires_grad_(needs) for each, needs in zip(trained, needed, strict=True)]
        leaves = [each for each in inputs if each.requires_grad]
        total, gradients = trained[0].new_zeros(()), [torch.zeros_like(each) for each in leaves]
        for keys_TE in _shown(keys_ME, hidden_M):
            with torch.set_grad_enabled(bool(leaves)):
                value = of_tile(keys_TE, *inputs)
            total = total + value.detach()
            for whole, part in zip(
                gradients, torch.autograd.grad(value, leaves) if leaves else (), strict=True
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
            *(grad * next(saved) if needs else None for needs in ctx.needs_input_grad[3:]),
        )
