"""Models on a CPU: attention by plain products where torch's fused kernel is slower, and retained memory.

The fused kernel works text by text and head by head; short texts have so little work that its own steps cost
more than the products, and its backward pass is several times slower at every length that was measured
(`docs/benchmarks.md`). The results agree up to rounding.

B  texts    H  heads    T  tokens
"""

from typing import Any

import torch
from torch import Tensor, nn

from stillhouse.core.allocation import keep_large_blocks
from stillhouse.students.cpu.packing import current_packing, packed_attention

NAME = "stillhouse-cpu"
SHORT = 32
"""Tokens up to which plain products were faster without gradients."""


def optimise_for_cpu(model: nn.Module, device: str) -> None:
    """On a CPU, choose attention by length and keep freed memory in the process; elsewhere do nothing."""
    if torch.device(device).type == "cpu":
        keep_large_blocks()
        prefer_quick_attention(model, device)


def prefer_quick_attention(model: nn.Module, device: str) -> None:
    """Let a model on a CPU choose its attention by text length; on other devices nothing changes.

    Every part that is a transformers model with fused attention is switched.
    """
    if torch.device(device).type != "cpu":
        return
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == "sdpa":
            part.set_attn_implementation(NAME)


def _attention(
    module: nn.Module,
    query_BHTD: Tensor,
    key_BHTD: Tensor,
    value_BHTD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **given: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as transformers calls it; the mask is 0 for visible tokens and very negative for others."""
    if (packing := current_packing()) is not None:
        assert query_BHTD.shape[0] == 1, "a packed batch is one row"
        scale = query_BHTD.shape[-1] ** -0.5 if scaling is None else scaling
        states = (query_BHTD[0], key_BHTD[0], value_BHTD[0])
        found_NHD = packed_attention(packing, *states, scale, dropout, training=module.training)
        return found_NHD[None], None
    trains = torch.is_grad_enabled() and query_BHTD.requires_grad
    plain = key_BHTD.shape == query_BHTD.shape == value_BHTD.shape
    plain = plain and given.get("position_bias") is None and given.get("cache") is None
    causal = attention_mask is None and given.get("is_causal", getattr(module, "is_causal", True))
    traced = torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()
    if not plain or causal or traced or not (trains or query_BHTD.shape[2] <= SHORT):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(
            module, query_BHTD, key_BHTD, value_BHTD, attention_mask, dropout, scaling, **given
        )
    scale = query_BHTD.shape[-1] ** -0.5 if scaling is None else scaling
    weights_BHTT = (query_BHTD * scale) @ key_BHTD.transpose(2, 3)
    if attention_mask is not None:
        weights_BHTT = weights_BHTT + _like(weights_BHTT, attention_mask)
    # The kernel computes in float32 whatever it reads and writes.
    weights_BHTT = weights_BHTT.softmax(dim=-1, dtype=weights_BHTT.dtype)
    weights_BHTT = nn.functional.dropout(weights_BHTT, p=dropout, training=module.training)
    return (weights_BHTT @ value_BHTD).transpose(1, 2).contiguous(), None


def _like(weights_BHTT: Tensor, mask: Tensor) -> Tensor:
    """The mask in the precision of the weights: in float32 it would make float32 of them all.

    Its lowest value stays finite, so that a row without a visible token gives no NaN.
    """
    return mask.clamp(min=torch.finfo(weights_BHTT.dtype).min).to(weights_BHTT.dtype)
