"""Texts of a batch end to end: one row of real tokens through all products, with padding in attention alone.

A padded batch multiplies its padding too, and a batch in small groups multiplies many small matrices. Here
the tokens of all texts stand in one row. What a layer does to each token by itself (products, norms,
activations) is done to the whole row at once; attention, which relates the tokens of one text, is done in
groups of texts of similar length, each padded to its longest.

N  tokens of the row    G  texts of a group    L  tokens of its longest    H  heads    D  width of a head
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stillhouse.core.types import Tokens

_ROW, _LONGEST = 256, 16
"""The row's length and a group's longest are rounded up to multiples: a shape that has been seen has its
kernel, while a new one is compiled first (oneDNN's bfloat16 products)."""


@dataclass(frozen=True)
class Group:
    """Texts of similar length, consecutive in the row.

    Attributes:
        texts_G: Their places in the batch.
        tokens: The texts, padded to L.
        places_GL: For each token of the padded texts its place in the group, 0 for padding; flat.
        real_N: The places of the real tokens among the padded ones, in the order of the row.
    """

    texts_G: Tensor
    tokens: Tokens
    places_GL: Tensor
    real_N: Tensor

    def padded(self, states_NX: Tensor) -> Tensor:
        """Pad the states of the group's tokens, (G, L, …); a padding token has the state of the first."""
        shape = (*self.tokens.input_ids_BT.shape, *states_NX.shape[1:])
        return states_NX.index_select(0, self.places_GL).view(shape)

    def bias(self, dtype: torch.dtype) -> Tensor:
        """Return the bias on the scores of the keys, (G, 1, 1, L): the lowest number for padding."""
        padding_G11L = self.tokens.attention_mask_BT[:, None, None] == 0
        return torch.zeros(1, dtype=dtype).where(~padding_G11L, torch.finfo(dtype).min)

    def unpadded(self, states_GLX: Tensor) -> Tensor:
        """Put the real tokens of the padded texts end to end; the inverse of `padded`."""
        return states_GLX.flatten(0, 1).index_select(0, self.real_N)


@dataclass(frozen=True)
class Packing:
    """A batch as one row.

    Attributes:
        ids_N: Token ids; the end is filled up with the id 0.
        positions_N: Place of each token in its text, from 0.
        groups: The texts, shortest first.
    """

    ids_N: Tensor
    positions_N: Tensor
    groups: tuple[Group, ...]

    @property
    def real(self) -> int:
        """Number of tokens that belong to texts."""
        return sum(len(group.real_N) for group in self.groups)

    def split(self, states_NX: Tensor) -> tuple[Tensor, ...]:
        """Cut a row into the states of each group's tokens; what fills the row up is left out.

        One operation: the gradient of a slice would be a whole row of its own for every group.
        """
        sizes = [len(group.real_N) for group in self.groups]
        return torch.split(states_NX, [*sizes, len(self.ids_N) - sum(sizes)])[: len(sizes)]


def pack(tokens: Tokens, order_B: Tensor, size: int) -> Packing:
    """Put the texts of a padded batch end to end.

    Args:
        tokens: The batch, padding on the right; every text has a token.
        order_B: The texts from the shortest to the longest.
        size: Texts per group, in that order.
    """
    groups, ids, positions = [], [], []
    for texts_G in torch.split(order_B, size):
        lengths_G = tokens.attention_mask_BT[texts_G].sum(dim=1)
        longest = -(-int(lengths_G.max()) // _LONGEST) * _LONGEST
        part = _cut(tokens, texts_G, longest)
        real_N = part.attention_mask_BT.flatten().nonzero().flatten()
        places_GL = torch.zeros(part.attention_mask_BT.numel(), dtype=torch.int64, device=real_N.device)
        places_GL[real_N] = torch.arange(len(real_N), device=real_N.device)
        groups.append(Group(texts_G, part, places_GL, real_N))
        ids.append(part.input_ids_BT.flatten()[real_N])
        positions.append(real_N % longest)
    filler = ids[0].new_zeros(-sum(map(len, ids)) % _ROW)
    return Packing(torch.cat([*ids, filler]), torch.cat([*positions, filler]), tuple(groups))


def _cut(tokens: Tokens, texts_G: Tensor, longest: int) -> Tokens:
    """Some texts of a batch with so many tokens each, which may be more than the batch has."""
    more = max(0, longest - tokens.input_ids_BT.shape[1])
    return Tokens(
        *(
            nn.functional.pad(part[texts_G, :longest], (0, more))
            for part in (tokens.input_ids_BT, tokens.attention_mask_BT)
        )
    )


_CURRENT: ContextVar[Packing | None] = ContextVar("packing", default=None)


@contextlib.contextmanager
def packed(packing: Packing) -> Iterator[None]:
    """Run a block in which the attention of this package takes its one row for these texts."""
    token = _CURRENT.set(packing)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_packing() -> Packing | None:
    """The packing of the block that is running; None outside."""
    return _CURRENT.get()


def packed_attention(
    packing: Packing,
    query_HND: Tensor,
    key_HND: Tensor,
    value_HND: Tensor,
    scale: float,
    dropout: float,
    *,
    training: bool,
) -> Tensor:
    """Attend within every text of a row, (N, H, D); zeros for what fills it up."""
    rows = zip(
        *(packing.split(state.transpose(0, 1)) for state in (query_HND, key_HND, value_HND)), strict=True
    )
    found = []
    for group, states in zip(packing.groups, rows, strict=True):
        query, key, value = (group.padded(state_NHD).transpose(1, 2) for state_NHD in states)
        weights_GHLL = (query * scale) @ key.transpose(2, 3)
        weights_GHLL = weights_GHLL + group.bias(weights_GHLL.dtype)
        weights_GHLL = weights_GHLL.softmax(dim=-1, dtype=weights_GHLL.dtype)
        weights_GHLL = nn.functional.dropout(weights_GHLL, p=dropout, training=training)
        found.append(group.unpadded((weights_GHLL @ value).transpose(1, 2)))
    filler = len(packing.ids_N) - packing.real
    return torch.cat([*found, found[0].new_zeros(filler, *found[0].shape[1:])])
