"""Attention on a CPU: plain products where the fused kernel of torch is the slower one.

The fused kernel works text by text and head by head; short texts have so little work each that its own steps
cost more than the products, and its backward pass is several times slower at every length that was measured
(`docs/benchmarks.md`). The same numbers but for the rounding.

B  texts    H  heads    T  tokens
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from stillhouse.students.encoder import StudentModule

NAME = "stillhouse-cpu"
SHORT = 32
"""Tokens up to which plain products were quicker without gradients."""


def prefer_quick_attention(model: "nn.Module | StudentModule", device: str) -> None:
    """Let a model choose its attention by length on a CPU; elsewhere, and where it cannot, nothing changes.

    Args:
        model: Any module; every part that is a model of transformers with its fused attention is switched.
        device: Where it runs.
    """
    if torch.device(device).type != "cpu":
        return
    from transformers import PreTrainedModel

    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == "sdpa":
            _register()
            part.set_attn_implementation(NAME)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, eager_mask)


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
    """As transformers calls it; the mask is 0 for what is seen and very negative for what is not."""
    trains = torch.is_grad_enabled() and query_BHTD.requires_grad
    alike = key_BHTD.shape == query_BHTD.shape == value_BHTD.shape
    alike = alike and given.get("position_bias") is None and given.get("cache") is None
    causal = attention_mask is None and given.get("is_causal", getattr(module, "is_causal", True))
    traced = torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()
    if not alike or causal or traced or not (trains or query_BHTD.shape[2] <= SHORT):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(
            module, query_BHTD, key_BHTD, value_BHTD, attention_mask, dropout, scaling, **given
        )
    scale = query_BHTD.shape[-1] ** -0.5 if scaling is None else scaling
    weights_BHTT = (query_BHTD * scale) @ key_BHTD.transpose(2, 3)
    if attention_mask is not None:
        weights_BHTT = weights_BHTT + attention_mask
    wide = torch.promote_types(weights_BHTT.dtype, torch.float32)
    weights_BHTT = weights_BHTT.softmax(dim=-1, dtype=wide).to(value_BHTD.dtype)
    weights_BHTT = nn.functional.dropout(weights_BHTT, p=dropout, training=module.training)
    return (weights_BHTT @ value_BHTD).transpose(1, 2).contiguous(), None
