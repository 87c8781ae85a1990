"""The few shapes and contracts that every layer speaks of.

Shape suffixes, used in every file:

    B  batch (under DDP the local part, unless a docstring says "gathered")
    T  tokens in the longest text of the batch
    H  hidden size of a model         D  student's embedding dimension
    E  teacher's embedding dimension  K  hard negatives per example, or the depth of a ranking
    N  rows of a table                Q  queries
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt
from torch import Tensor

FloatArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.integer]
ValueArray = FloatArray | IntArray
"""Labels, or scores and logits."""

Terms = dict[str, Tensor]
"""The weighted terms of an objective by name; their sum is the loss."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A padded batch of token ids, padding on the right.

    Attributes:
        input_ids_BT: int64 token ids.
        attention_mask_BT: int64, 1 for a real token and 0 for padding.
    """

    input_ids_BT: Tensor
    attention_mask_BT: Tensor

    def to(self, device: object) -> "Tokens":
        """The same tokens on another device."""
        return Tokens(
            self.input_ids_BT.to(device, non_blocking=True),  # type: ignore[call-overload]
            self.attention_mask_BT.to(device, non_blocking=True),  # type: ignore[call-overload]
        )


class LazyStates(Sequence[Tensor]):
    """Hidden states that are put together when they are asked for: most objectives read one layer or none.

    Args:
        depth: Layers, the embedding layer included.
        state: Layer, from 0, to its state.
        mean: Layer, from 0, to the mean of its state over the tokens, (B, H), where that takes less than the
            state; see `students.pooling.mean_of`.
    """

    def __init__(
        self, depth: int, state: Callable[[int], Tensor], mean: Callable[[int], Tensor] | None = None
    ) -> None:
        self._depth, self._state, self.mean = depth, state, mean

    def __len__(self) -> int:
        """Layers."""
        return self._depth

    @overload
    def __getitem__(self, layer: int) -> Tensor: ...

    @overload
    def __getitem__(self, layer: slice) -> list[Tensor]: ...

    def __getitem__(self, layer: int | slice) -> Tensor | list[Tensor]:
        """The state of a layer; negative layers count from the last."""
        found = range(self._depth)[layer]
        return self._state(found) if isinstance(found, int) else [self._state(index) for index in found]


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a model says of a batch of texts.

    Attributes:
        embedding_BD: One vector a text, as it leaves the model.
        hidden: Hidden states, each (B, T, H): index 0 is the embedding layer's output, index i the
            output of layer i. Empty for vectors that come out of a store.
        mask_BT: The attention mask that belongs to ``hidden``; None when there is none.
    """

    embedding_BD: Tensor
    hidden: Sequence[Tensor] = ()
    mask_BT: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a training table, by column.

    Attributes:
        tokens: Column name to the student's tokens. A column of K texts a row (hard negatives) is
            flattened row by row to B*K texts.
        rows: Column name to int64 row ids in that column's text table, (B,) or (B, K): equal ids are
            equal texts, which is how false negatives are recognised.
        teacher: Column name to what the teacher says of that column; absent where no teacher is read.
        values: What is known of each row beside its texts, by name: labels (int64), scores or a teacher's
            logits (float32), (B,) or (B, C).
    """

    tokens: Mapping[str, Tokens]
    rows: Mapping[str, Tensor]
    teacher: Mapping[str, Encoding]
    values: Mapping[str, Tensor] = field(default_factory=dict)


class Student(Protocol):
    """A model that is trained: tokens in, an `Encoding` out."""

    dim: int

    def __call__(self, tokens: Tokens) -> Encoding:
        """Encode a batch of tokens."""
        ...


class Objective(Protocol):
    """What a stage minimises. It owns everything trainable beside the student (W, heads, a memory bank).

    One with a head may offer ``score(student: Mapping[str, Encoding]) -> Tensor``, (B,) or (B, C), higher is
    likelier: what evaluators are given, and what `training.walk.encoder_in` opens, then scores texts too.
    """

    def __call__(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """The weighted terms of the loss, each a scalar."""
        ...


class Encoder(Protocol):
    """Anything that turns texts into vectors: a student, a teacher, an exported folder."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """float32 vectors, (N, D), in the order of ``texts``."""
        ...


class Evaluator(Protocol):
    """A measurement of an encoder: figures by name, such as ``docsearch_cosine_mrr@10``."""

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Measure ``model``."""
        ...
