"""Matrix products in float32 on a CPU, by oneDNN instead of the BLAS that torch was built with.

Torch uses MKL for them, which fills half of an AMD processor's vector width; oneDNN fills all of it, with the
same float32 arithmetic. Torch offers it through a tensor layout of its own (`docs/benchmarks.md` has the
measurements). Products in bfloat16 use oneDNN anyway.

N  rows    I  inputs    O  outputs
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

LEAST_ROWS = 16
"""Fewer rows are as fast without the change of layout."""


def laid_out(weight_OI: Tensor) -> Tensor:
    """Convert a weight to oneDNN's layout, for several calls of `linear`; unchanged without oneDNN."""
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return weight_OI.to_mkldnn() if available and not weight_OI.is_mkldnn else weight_OI


def linear(input_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Compute ``x Wᵀ + b`` in float32 on the CPU, without gradients, (N, O); W in either layout."""
    if len(input_NI) < LEAST_ROWS:
        return F.linear(input_NI, weight_OI.to_dense() if weight_OI.is_mkldnn else weight_OI, bias_O)
    weight = laid_out(weight_OI)
    if not weight.is_mkldnn:
        return F.linear(input_NI, weight, bias_O)
    bias = bias_O if bias_O is None else bias_O.to_mkldnn()
    return F.linear(input_NI.to_mkldnn(), weight, bias).to_dense()


def quick_products(device: str, compute: str) -> contextlib.AbstractContextManager[object]:
    """Return a context in which linear layers are computed by `linear` if they are float32 on a CPU.

    It is meant for passes without gradients. Under autocast, inside or outside, nothing changes.
    """
    if torch.device(device).type != "cpu" or compute != "float32":
        return contextlib.nullcontext()
    return _ByOneDNN()


class _ByOneDNN(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        replaced = func is F.linear and not kwargs and not torch.is_autocast_enabled("cpu")
        if replaced and all(_is_plain(each) for each in args):
            states, weight, *bias = args
            flat = linear(states.reshape(-1, states.shape[-1]), weight, *bias)
            return flat.view(*states.shape[:-1], len(weight))
        return func(*args, **(kwargs or {}))


def _is_plain(tensor: Tensor | None) -> bool:
    if tensor is None:
        return True
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu" and not tensor.is_mkldnn
