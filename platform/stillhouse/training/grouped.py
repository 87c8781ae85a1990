"""A student's pass over a batch in groups of similar length: the same encodings with less padding.

Two thirds of a random batch of sentences are padding if it is padded to its longest. Sorted and split into
groups, one sixth is padding, and the gradient is the same. Where the encoder can (`PackingStudent`), nothing
but attention is done in groups, and its products multiply no padding at all.
"""

import functools
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional

from stillhouse.core.types import Encoding, LazyStates, Tokens, WordEmbedder
from stillhouse.students import pooling
from stillhouse.students.backbone import States
from stillhouse.students.cpu.packing import Group, Packing, pack

TEXTS_PER_GROUP = {"cpu": 16}
"""Group size by device type; a type that is not named pads its batches whole."""


@runtime_checkable
class PackingStudent(Protocol):
    """A student whose encoder can run on one row of all tokens, see `students.cpu.packing`."""

    def packs(self, device: torch.device) -> bool:
        """Return whether it can on this device."""
        ...

    def run_packed(self, packing: Packing) -> tuple[Tensor, ...]:
        """Compute all hidden states of a row."""
        ...

    def __call__(self, tokens: Tokens, *, states: States | None = None) -> Encoding:
        """Encode a batch whose states may be given."""
        ...


def encode_grouped(student: Any, tokens: Tokens, size: int = 0) -> Encoding:
    """Encode a batch group by group, shortest texts first, and restore the order.

    A `PackingStudent` in training runs its encoder on all tokens at once, and the groups are those of its
    attention and of its pooling.

    A `WordEmbedder` looks its word vectors up once for the whole batch: every further look-up would fill
    another gradient of the size of the vocabulary.

    Args:
        student: Maps tokens to encodings; the encoding of a text must not depend on the other texts.
        tokens: A padded batch.
        size: Texts per group; 0 takes the default of the device.
    """
    size = size or TEXTS_PER_GROUP.get(tokens.input_ids_BT.device.type, 0)
    if size == 0:
        return student(tokens)  # type: ignore[no-any-return]
    lengths_B = tokens.attention_mask_BT.sum(dim=1)
    order_B = torch.argsort(lengths_B, stable=True)
    if isinstance(student, PackingStudent) and _packs(student, lengths_B):
        return _joined_groups(_packed(student, pack(tokens, order_B, size)), order_B, tokens)
    if len(order_B) <= size:
        return student(tokens)  # type: ignore[no-any-return]
    real_BT = tokens.attention_mask_BT.bool()
    words_NH = (
        student.embed_words(tokens.input_ids_BT[real_BT]) if isinstance(student, WordEmbedder) else None
    )
    starts_B = lengths_B.cumsum(dim=0) - lengths_B
    groups: list[Encoding] = []
    for rows in torch.split(order_B, size):
        longest = int(lengths_B[rows].max())
        part = Tokens(tokens.input_ids_BT[rows, :longest], tokens.attention_mask_BT[rows, :longest])
        if words_NH is None:
            groups.append(student(part))
        else:
            places = starts_B[rows, None] + torch.arange(longest, device=rows.device)
            groups.append(student(part, words_NH[places.clamp(max=len(words_NH) - 1)]))
    return _joined_groups(groups, order_B, tokens)


def _packs(student: PackingStudent, lengths_B: Tensor) -> bool:
    """Return whether a batch goes through the encoder as one row: in training, if every text has a token."""
    return torch.is_grad_enabled() and student.packs(lengths_B.device) and int(lengths_B.min()) > 0


def _packed(student: PackingStudent, packing: Packing) -> list[Encoding]:
    """Encode the groups of a row."""
    states = student.run_packed(packing)
    # One split serves all groups. What was split without gradients, for diagnostics, does not serve a loss.
    split = functools.cache(lambda layer, with_gradient: packing.split(states[layer]))

    def of(place: int, group: Group) -> Encoding:
        hidden = LazyStates(
            len(states), lambda layer: group.padded(split(layer, torch.is_grad_enabled())[place])
        )
        return student(group.tokens, states=(hidden[-1], hidden))

    return [of(place, group) for place, group in enumerate(packing.groups)]


def _joined_groups(groups: list[Encoding], order_B: Tensor, tokens: Tokens) -> Encoding:
    """The encodings of all groups as those of the batch, in its order."""
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
