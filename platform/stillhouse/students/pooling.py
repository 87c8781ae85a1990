"""Pooling from one state per token to one vector per text; padding is always ignored.

Shapes as in `stillhouse.core.types`. Sums are computed in float32 or wider, so bfloat16 states lose nothing.
"""

import torch
from torch import Tensor

from stillhouse.core.types import Encoding, LazyStates

POOLINGS = ("mean", "cls", "max", "last")
"""Poolings of any student: the mean, the first token, the maximum, the last token."""
POOLER = "pooler"
"""The first token's state after a published model's own pooler, a linear layer with a bias and tanh."""


def pool(pooling: str, hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
    """Pool by name.

    Args:
        pooling: One of `POOLINGS`, or `POOLER`: then the state that the pooler takes.
        hidden_BTH: One state per token.
        mask_BT: 1 for a real token and 0 for padding, which is on the right.

    Returns:
        (B, H), float32 or wider.
    """
    match pooling:
        case "mean":
            return mean(hidden_BTH, mask_BT)
        case "cls" | "pooler":
            return cls(hidden_BTH)
        case "max":
            return maximum(hidden_BTH, mask_BT)
        case "last":
            return last(hidden_BTH, mask_BT)
    raise AssertionError(f"the pooling must be checked before, but got {pooling!r}")


def mean(hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
    """Average the states of the real tokens, (B, H); zeros for a text without any."""
    states_BTH, mask_BT1 = _wide(hidden_BTH), mask_BT.unsqueeze(-1)
    # masked_fill, not a product: a product would turn an infinite state of a padding token into NaN.
    total_BH = states_BTH.masked_fill(mask_BT1 == 0, 0.0).sum(dim=1)
    return total_BH / mask_BT1.sum(dim=1).clamp(min=1)


def mean_of(encoding: Encoding, layer: int) -> Tensor:
    """Compute the `mean` of a hidden state, (B, H); negative layers count from the last."""
    states = encoding.hidden
    assert encoding.mask_BT is not None and states, "a student gives its hidden states"
    if isinstance(states, LazyStates) and states.mean is not None:
        return states.mean(range(len(states))[layer])
    return mean(states[layer], encoding.mask_BT)


def cls(hidden_BTH: Tensor) -> Tensor:
    """Take the state of the first token, (B, H)."""
    return _wide(hidden_BTH[:, 0])


def last(hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
    """Take the state of the last real token, (B, H), on whichever side the padding is; zeros without any."""
    places_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    last_B11 = (places_T * mask_BT).amax(dim=1)[:, None, None]
    state_BH = _wide(hidden_BTH).gather(1, last_B11.expand(-1, 1, hidden_BTH.shape[2])).squeeze(1)
    return state_BH.masked_fill((mask_BT == 0).all(dim=1, keepdim=True), 0.0)


def maximum(hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
    """Take the maximum of each dimension over the real tokens, (B, H); zeros for a text without any."""
    padding_BT1 = mask_BT.unsqueeze(-1) == 0
    largest_BH = _wide(hidden_BTH).masked_fill(padding_BT1, float("-inf")).amax(dim=1)
    return largest_BH.masked_fill(padding_BT1.all(dim=1), 0.0)


def _wide(states: Tensor) -> Tensor:
    return states.to(torch.promote_types(states.dtype, torch.float32))
