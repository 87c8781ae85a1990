"""A BERT's pass over texts that lie end to end, without padding.

All layers but attention treat each token by itself, so they take the tokens of a whole batch in one product.
Attention takes the texts of one length together: nothing is masked. The encodings are those of a padded pass.

N  tokens of the batch, padding left out
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.types import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "stillhouse_packed"
"""Of the attention, among those of transformers."""

Runs = list[tuple[int, int]]
"""Texts of one length, and the length, in the order in which they lie."""


class Layout:
    """Where the tokens of a padded batch lie when they are packed, shortest texts first.

    Args:
        mask_BT: 1 for a token, padding on the right.

    Attributes:
        places_N: The place of each token in the flattened batch.
        positions_N: Its place in its text.
        runs: What attention goes by.
    """

    def __init__(self, mask_BT: Tensor) -> None:
        self.shape = tuple(mask_BT.shape)
        lengths_B = mask_BT.sum(dim=1)
        order_B = torch.argsort(lengths_B, stable=True)
        texts_N, self.positions_N = mask_BT[order_B].nonzero(as_tuple=True)
        self.places_N = order_B[texts_N] * self.shape[1] + self.positions_N
        lengths, counts = torch.unique_consecutive(lengths_B[order_B], return_counts=True)
        self.runs: Runs = list(zip(counts.tolist(), lengths.tolist(), strict=True))

    def padded(self, packed_NH: Tensor) -> Tensor:
        """The same values as a padded batch, (B, T, H), with zeros for padding."""
        rows, columns = self.shape
        flat = packed_NH.new_zeros(rows * columns, packed_NH.shape[1])
        return flat.index_copy(0, self.places_N, packed_NH).view(rows, columns, -1)


def can_pack(backbone: "PreTrainedModel") -> bool:
    """Whether the architecture takes positions and an attention from outside: so far, BERT."""
    return backbone.config.model_type == "bert" and not backbone.config.is_decoder


def run_packed(
    backbone: "PreTrainedModel", tokens: Tokens, layout: Layout
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The last state of every token, (N, H), and all hidden states, the embedding layer's first."""
    ids_1N = tokens.input_ids_BT.flatten()[layout.places_N][None]
    with _attention_of(backbone):
        states: Any = backbone(
            input_ids=ids_1N,
            position_ids=layout.positions_N[None],
            token_type_ids=torch.zeros_like(ids_1N),
            output_hidden_states=True,
            runs=layout.runs,
        )
    last_NH: Tensor = states.last_hidden_state[0]
    return last_NH, tuple(state[0] for state in states.hidden_states or ()) or (last_NH,)


@contextlib.contextmanager
def _attention_of(backbone: "PreTrainedModel") -> Iterator[None]:
    """Let the layers use `attention` for one pass: they read its name in their configuration."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention)
    config: Any = backbone.config
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    *,
    runs: Runs,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention within each text, as transformers calls it.

    Args:
        module: The layer; dropout is applied while it trains.
        query: (1, heads, N, size of a head); so are ``key`` and ``value``.
        key: Its keys.
        value: Its values.
        attention_mask: None: no padding is here.
        scaling: Of the products.
        dropout: Rate.
        runs: Texts and lengths.

    Returns:
        (1, N, heads, size of a head), and no weights.
    """
    assert attention_mask is None, "packed texts need no mask"
    tokens = [texts * length for texts, length in runs]
    parts = zip(runs, *(side[0].transpose(0, 1).split(tokens) for side in (query, key, value)), strict=True)
    attended = []
    for (texts, length), *sides in parts:
        query_, key_, value_ = (side.unflatten(0, (texts, length)).transpose(1, 2) for side in sides)
        weights = F.softmax(query_ @ key_.transpose(2, 3) * scaling, dim=-1)
        weights = F.dropout(weights, p=dropout, training=module.training)
        attended.append((weights @ value_).transpose(1, 2).flatten(0, 1))
    return torch.cat(attended)[None], None
