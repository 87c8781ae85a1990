"""A student's pass over a batch in groups of similar length: the same encodings with less padding.

Two thirds of a random batch of sentences are padding if it is padded to its longest. Sorted and split into
groups, one sixth is padding, and the gradient is the same.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from stillhouse.core.types import Encoding, LazyStates, Tokens, WordEmbedder
from stillhouse.students import pooling

TEXTS_PER_GROUP = {"cpu": 16}
"""Group size by device type, where small matrix products are as fast per row as large ones."""


def encode_grouped(student: Any, tokens: Tokens, size: int = 0) -> Encoding:
    """Encode a batch group by group, shortest texts first, and restore the order.

    A `WordEmbedder` looks its word vectors up once for the whole batch: every further look-up would fill
    another gradient of the size of the vocabulary.

    Args:
        student: Maps tokens to encodings; the encoding of a text must not depend on the other texts.
        tokens: A padded batch.
        size: Texts per group; 0 takes the default of the device.
    """
    size = size or TEXTS_PER_GROUP.get(tokens.input_ids_BT.device.type, 0)
    if size == 0 or len(tokens.input_ids_BT) <= size:
        return student(tokens)  # type: ignore[no-any-return]
    real_BT = tokens.attention_mask_BT.bool()
    words_NH = (
        student.embed_words(tokens.input_ids_BT[real_BT]) if isinstance(student, WordEmbedder) else None
    )
    lengths_B = tokens.attention_mask_BT.sum(dim=1)
    starts_B = lengths_B.cumsum(dim=0) - lengths_B
    order_B = torch.argsort(lengths_B, stable=True)
    groups: list[Encoding] = []
    for rows in torch.split(order_B, size):
        longest = int(lengths_B[rows].max())
        part = Tokens(tokens.input_ids_BT[rows, :longest], tokens.attention_mask_BT[rows, :longest])
        if words_NH is None:
            groups.append(student(part))
        else:
            places = starts_B[rows, None] + torch.arange(longest, device=rows.device)
            groups.append(student(part, words_NH[places.clamp(max=len(words_NH) - 1)]))
    back_B = torch.argsort(order_B)
    depth, length = len(groups[0].hidden), tokens.input_ids_BT.shape[1]
    hidden = LazyStates(
        depth,
        lambda layer: _joined([group.hidden[layer] for group in groups], length)[back_B],
        lambda layer: torch.cat([pooling.mean_of(group, layer) for group in groups])[back_B],
    )
    embedding_BD = torch.cat([group.embedding_BD for group in groups])[back_B]
    return Encoding(embedding_BD, hidden, tokens.attention_mask_BT if depth else None)


def _joined(parts: list[Tensor], length: int) -> Tensor:
    """Concatenate the states of all groups, (B, T, H), padded with zeros to one length."""
    return torch.cat([functional.pad(part, (0, 0, 0, length - part.shape[1])) for part in parts])
