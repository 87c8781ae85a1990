"""The shapes and contracts that every layer of the package shares.

Shape suffixes, used in every file:

    B  batch (under DDP the local part, unless a docstring says "gathered")
    T  tokens in the longest text of the batch
    H  hidden size of a model         D  student's embedding dimension
    E  teacher's embedding dimension  K  hard negatives per example, or the depth of a ranking
    N  rows of a table                Q  queries
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, overload, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import Module

from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY

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
        """Copy the tokens to another device."""
        return Tokens(
            self.input_ids_BT.to(device, non_blocking=True),  # type: ignore[call-overload]
            self.attention_mask_BT.to(device, non_blocking=True),  # type: ignore[call-overload]
        )


class LazyStates(Sequence[Tensor]):
    """Hidden states that are computed on access: most objectives read one layer or none.

    Args:
        depth: Number of layers, the embedding layer included.
        state: Maps a layer, counted from 0, to its state.
        mean: Maps a layer, counted from 0, to the mean of its state over the tokens, (B, H), where that is
            cheaper than the state itself; see `students.pooling.mean_of`.
    """

    def __init__(
        self, depth: int, state: Callable[[int], Tensor], mean: Callable[[int], Tensor] | None = None
    ) -> None:
        self._depth, self._state, self.mean = depth, state, mean

    def __len__(self) -> int:
        """The number of layers, the embedding layer included."""
        return self._depth

    @overload
    def __getitem__(self, layer: int) -> Tensor: ...

    @overload
    def __getitem__(self, layer: slice) -> list[Tensor]: ...

    def __getitem__(self, layer: int | slice) -> Tensor | list[Tensor]:
        """Compute the state of a layer; negative layers count from the last."""
        found = range(self._depth)[layer]
        return self._state(found) if isinstance(found, int) else [self._state(index) for index in found]


@dataclass(frozen=True, slots=True)
class Encoding:
    """The output of a model for a batch of texts.

    Attributes:
        embedding_BD: One vector per text, as it leaves the model.
        hidden: Hidden states, each (B, T, H): index 0 is the embedding layer's output, index i the
            output of layer i. Empty for vectors read from a store.
        mask_BT: The attention mask that belongs to ``hidden``; None when there is none.
    """

    embedding_BD: Tensor
    hidden: Sequence[Tensor] = ()
    mask_BT: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a training table, by column.

    Attributes:
        tokens: Column name to the student's tokens. A column of K texts per row (hard negatives) is
            flattened row by row to B*K texts.
        rows: Column name to int64 row ids in that column's text table, (B,) or (B, K): equal ids are
            equal texts, which is how false negatives are recognised.
        teacher: Column name to the teacher's encoding of that column; absent where no teacher is read.
        values: Further values of each row by name: labels (int64), scores or a teacher's logits (float32),
            (B,) or (B, C).
        live_tokens: Column name to the tokens that a live teacher reads; empty where it reads ``tokens``.
    """

    tokens: Mapping[str, Tokens]
    rows: Mapping[str, Tensor]
    teacher: Mapping[str, Encoding]
    values: Mapping[str, Tensor] = field(default_factory=dict)
    live_tokens: Mapping[str, Tokens] = field(default_factory=dict)


@runtime_checkable
class Student(Protocol):
    """A model that is trained: tokens in, an `Encoding` out."""

    dim: int

    def __call__(self, tokens: Tokens) -> Encoding:
        """Encode a batch of tokens."""
        ...


@runtime_checkable
class SidedModel(Protocol):
    """A student with a tower of its own for each side of a pair; called itself, it is the second one."""

    def tower(self, column: str) -> Student:
        """Return the tower that encodes a column."""
        ...


@runtime_checkable
class WordEmbedder(Protocol):
    """A student whose word vectors can be looked up before its forward pass, once for several of them."""

    def embed_words(self, ids_N: Tensor) -> Tensor:
        """Look up the vectors of token ids, (N, H)."""
        ...

    def __call__(self, tokens: Tokens, words_BTH: Tensor | None = None) -> Encoding:
        """Encode a batch of tokens, whose word vectors may be given."""
        ...


@runtime_checkable
class WeightAdapter(Protocol):
    """A student that selects what it takes over from the weights of an earlier, differently shaped one."""

    def adapted(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Select and convert the weights of an earlier student's state."""
        ...


@runtime_checkable
class PairModel(Protocol):
    """A model that reads the texts of a pair jointly: it gives scores, and no vector of a single text.

    Attributes:
        joint_columns: The columns that it reads in one pass, in the order of its arguments.
    """

    joint_columns: ClassVar[tuple[str, ...]]

    def __call__(self, *columns: Tokens) -> Tensor:
        """Score B first texts against C other texts each, (B, C); higher is better."""
        ...


class StockModule(Protocol):
    """One module of a sentence-transformers folder.

    Attributes:
        name: Its class in ``sentence_transformers.models``.
        at_root: Whether its files are in the root of the folder rather than in a subfolder.
    """

    name: ClassVar[str]
    at_root: ClassVar[bool]

    def write(self, folder: Path, tokenizer_path: Path, max_length: int) -> None:
        """Write its files into a folder.

        Args:
            folder: Where to write; made if it is missing.
            tokenizer_path: Folder with the tokenizer's files.
            max_length: Tokens per text, special ones included.
        """
        ...


@runtime_checkable
class Exportable(Protocol):
    """A student that says itself in which forms it can be exported, and as which modules.

    Attributes:
        max_tokens: Tokens of the longest text that it can read.
        export_sides: Names of the folders of a student that encodes the two sides of a pair apart, where a
            joiner may change the vectors of the first side; empty for a student of one folder.
    """

    max_tokens: int
    export_sides: ClassVar[tuple[str, ...]]

    def stock_modules(self) -> Sequence[StockModule]:
        """List the modules of its sentence-transformers folder, in order.

        Raises:
            BadInput: Stock modules cannot express this student.
        """
        ...

    def why_not(self, form: str) -> str:
        """Say why it cannot be exported in a form of `students.export.formats`; empty if it can."""
        ...


@runtime_checkable
class ScoringObjective(Protocol):
    """An objective with a head, whose scores evaluators may use as well as the student's vectors."""

    def score(self, student: Mapping[str, Encoding]) -> Tensor:
        """Score a batch from the student's encoding of each column, (B,) or (B, C); higher is likelier."""
        ...


@runtime_checkable
class LogitObjective(Protocol):
    """An objective whose logits can be recorded, for students that learn from them."""

    def logits(self, student: Mapping[str, Encoding]) -> Tensor:
        """Compute the logits of a batch from the student's encoding of each column, (B, C)."""
        ...


@runtime_checkable
class LayeredModel(Protocol):
    """A model of layers with states of one size, H."""

    @property
    def depth(self) -> int:
        """Number of layers, without the embedding layer."""
        ...

    hidden_size: int


@runtime_checkable
class Encoder(Protocol):
    """Anything that turns texts into vectors: a student, a teacher, an exported folder."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Encode texts as float32 vectors, (N, D), in their order."""
        ...


@runtime_checkable
class RoleEncoder(Encoder, Protocol):
    """An encoder with prompts of its own for queries and documents, as of sentence-transformers."""

    def encode_query(self, texts: Sequence[str]) -> FloatArray:
        """Encode queries as float32 vectors, (N, D), in their order."""
        ...

    def encode_document(self, texts: Sequence[str]) -> FloatArray:
        """Encode documents as float32 vectors, (N, D), in their order."""
        ...


class InRoles:
    """A `RoleEncoder` by one method of its own, `encoded`."""

    def encoded(self, role: str, texts: Sequence[str]) -> Any:
        """Encode texts of a role, (N, D), in their order."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> Any:
        """Encode texts without a role, (N, D), in their order."""
        return self.encoded(PLAIN, texts)

    def encode_query(self, texts: Sequence[str]) -> Any:
        """Encode queries, (N, D), in their order."""
        return self.encoded(QUERY, texts)

    def encode_document(self, texts: Sequence[str]) -> Any:
        """Encode documents, (N, D), in their order."""
        return self.encoded(DOCUMENT, texts)


def encode_as(model: Encoder, role: str, texts: Sequence[str]) -> FloatArray:
    """Encode texts of a role, (N, D); a model that knows no roles encodes all texts alike."""
    if role == PLAIN or not isinstance(model, RoleEncoder):
        return model.encode(texts)
    return model.encode_query(texts) if role == QUERY else model.encode_document(texts)


@runtime_checkable
class Scorer(Protocol):
    """Anything that scores texts or pairs of texts: a student with its objective's head, a cross-encoder."""

    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> FloatArray:
        """Score texts or pairs, (N,) or (N, C), in their order; higher is likelier."""
        ...


@runtime_checkable
class ColumnScorer(Scorer, Protocol):
    """A scorer trained on certain columns, in the order of ``score``: one for texts, two for pairs."""

    columns: tuple[str, ...]


@runtime_checkable
class PairReader(Scorer, Protocol):
    """A scorer that reads both texts of a pair at once, and gives no vector of a single text."""

    reads_pairs: ClassVar[bool]


@runtime_checkable
class BatchedModel(Protocol):
    """An encoder or scorer whose batches can be set."""

    def in_batches(self, texts: int) -> Any:
        """Return the same model, which reads at least that many texts per forward pass."""
        ...


@runtime_checkable
class StudentHolder(Protocol):
    """An encoder that keeps its student as a module, whose weights can be counted."""

    student: Module


@runtime_checkable
class ThreadedEncoder(Protocol):
    """An encoder that runs outside of torch, with a number of threads of its own."""

    threads: int


@runtime_checkable
class MeasuredSize(Protocol):
    """An encoder whose weights are in no torch module, and which states their size itself."""

    def sizes(self) -> dict[str, float]:
        """The parameters, where they are known, and ``megabytes``: 10^6 bytes of the weights' files."""
        ...


class Evaluator(Protocol):
    """A measurement of an encoder: metrics by name, such as ``docsearch_cosine_mrr@10``."""

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Measure a model."""
        ...


@runtime_checkable
class CountedEvaluator(Protocol):
    """An evaluator that says how much its figures are computed from.

    Attributes:
        unit: What is counted, in the plural, such as ``queries``.
    """

    unit: ClassVar[str]

    def counts(self) -> dict[str, int]:
        """Map the start of a figure's name to the number behind it; the longest start that fits holds."""
        ...


@runtime_checkable
class SplitEvaluator(Protocol):
    """An evaluator of one split of its data, ``dev`` or ``test``; a dev suite refuses any but ``dev``."""

    split: str


@runtime_checkable
class ScorerEvaluator(Protocol):
    """An evaluator of a `Scorer`; a test suite leaves it out for a model without scores."""

    needs_scorer: ClassVar[bool]
