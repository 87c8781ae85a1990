"""The students of retrieval distillation: a convolution or a recurrence over word vectors.

Shakeri et al., Knowledge Distillation in Document Retrieval, §3.2: "single layer CNN and LSTM models",
"separately applied to claim and document to create the encodings". Neither side sees the other, so that
documents can be indexed; `stillhouse.losses.pair_head` joins the two vectors. One tower encodes both sides,
or `SeparateTowers` has one for each. The paper gives no sizes other than 141 k parameters for SimpleLSTM:
over fixed 300-d word vectors, one tower with the defaults here has 140 800, and two have twice as many.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec
from stillhouse.core.types import Encoding, StockModule, Tokens
from stillhouse.students.export.folder_modules import (
    CNN,
    LSTM,
    STOCK,
    Dense,
    Pooling,
    WordEmbeddings,
    require_stock_pooling,
)
from stillhouse.students.lstm import POOLINGS, MaskedLSTM
from stillhouse.students.output_head import check_states
from stillhouse.students.pooling import maximum
from stillhouse.students.words import seeded, word_embedding
from stillhouse.values.data import Model

SIDES = ("claims", "documents")


class TowerStudent(nn.Module):
    """A student that is exported as two folders, one for each of `SIDES`."""

    export_sides: ClassVar[tuple[str, ...]] = SIDES

    def why_not(self, form: str) -> str:
        """Say why it cannot be exported in a form; empty if it can."""
        return "" if form == STOCK else "two towers are written as folders"


class SimpleCNN(TowerStudent):
    """Convolution over the words, ReLU, the maximum over the text.

    Attributes:
        words: Word vectors.
        convolution: d → D over ``width`` neighbouring words; a text is padded with zeros at both ends.
        dim: D, the number of filters.
        max_tokens: Larger than any text: there are no positions that could run out.
        tokenizer: The folder of words.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        words: Model,
        filters: int = 100,
        width: int = 3,
        word_dim: int | None = None,
        train_words: bool = False,
        dropout: float = 0.0,
        normalize: bool = False,
        seed: int = 0,
    ) -> None:
        """Build the tower.

        Args:
            words: A folder with ``tokenizer.json`` and, unless they are trained, word vectors.
            filters: D.
            width: Number of words that a filter sees; odd.
            word_dim: d; None takes that of the folder's vectors, and 300 without any.
            train_words: Train the word vectors too.
            dropout: Dropout of the word vectors.
            normalize: Return vectors of length 1; the paper does not.
            seed: Seed of all random weights. The global random state is left unchanged.

        Raises:
            BadInput: A value out of range, or a folder without a vocabulary.
        """
        super().__init__()
        require(filters >= 1, "filters >= 1", filters=filters)
        require(width >= 1 and width % 2 == 1, "width >= 1, odd", width=width)
        require(0 <= dropout < 1, "0 <= dropout < 1", dropout=dropout)
        with seeded(seed):
            self.words = word_embedding(words, dim=word_dim, trained=train_words)
            self.convolution = nn.Conv1d(self.words.embedding_dim, filters, width, padding=width // 2)
        self.dropout, self.normalize = nn.Dropout(dropout), normalize
        self.dim, self.tokenizer, self.max_tokens = filters, words, 1 << 30

    def forward(self, tokens: Tokens) -> Encoding:
        """Encode a batch; ``hidden`` is the words (B, T, d), then the outputs of the filters (B, T, D)."""
        mask_BT = tokens.attention_mask_BT
        words_BTH = self.dropout(self.words(tokens.input_ids_BT))
        # Padding must look like the end of a text to the convolution: zeros.
        inputs_BTH = words_BTH.masked_fill(mask_BT.unsqueeze(-1) == 0, 0.0)
        states_BTD = functional.relu(self.convolution(inputs_BTH.transpose(1, 2)).transpose(1, 2))
        return Encoding(
            _finish(maximum(states_BTD, mask_BT), self.normalize), (words_BTH, states_BTD), mask_BT
        )

    def stock_modules(self) -> Sequence[StockModule]:
        """List word embeddings, convolution, maximum and ReLU.

        The maximum of ReLUs is the ReLU of the maximum, and a dense layer has one.
        """
        identity = nn.Linear(self.dim, self.dim, bias=False)
        identity.weight = nn.Parameter(torch.eye(self.dim))
        return (
            WordEmbeddings(self.words),
            CNN(self.convolution),
            Pooling(self.dim, "max"),
            Dense(identity, nn.ReLU()),
        )


class SimpleLSTM(TowerStudent):
    """An LSTM over the words; the paper does not say how its states become a vector.

    Attributes:
        words: Word vectors.
        recurrence: One layer.
        dim: D, units times directions.
        max_tokens: Larger than any text: there are no positions that could run out.
        tokenizer: The folder of words.
    """

    version: ClassVar[int] = 2

    def __init__(
        self,
        words: Model,
        units: int = 50,
        bidirectional: bool = True,
        pooling: str = "last",
        word_dim: int | None = None,
        train_words: bool = False,
        dropout: float = 0.0,
        normalize: bool = False,
        seed: int = 0,
    ) -> None:
        """Build the tower.

        Args:
            words: A folder with ``tokenizer.json`` and, unless they are trained, word vectors.
            units: Units per direction.
            bidirectional: Read the text from both ends.
            pooling: ``last``: the last state of each direction. ``mean`` and ``max``: over all words.
            word_dim: d; None takes that of the folder's vectors, and 300 without any.
            train_words: Train the word vectors too.
            dropout: Dropout of the word vectors.
            normalize: Return vectors of length 1; the paper does not.
            seed: Seed of all random weights. The global random state is left unchanged.

        Raises:
            BadInput: A value out of range, or a folder without a vocabulary.
        """
        super().__init__()
        require(units >= 1, "units >= 1", units=units)
        check_states(pooling=pooling, dropout=dropout, poolings=POOLINGS)
        with seeded(seed):
            self.words = word_embedding(words, dim=word_dim, trained=train_words)
            self.recurrence = MaskedLSTM(self.words.embedding_dim, units, bidirectional=bidirectional)
        self.dropout, self.normalize = nn.Dropout(dropout), normalize
        self.dim, self.tokenizer, self.pooling = self.recurrence.dim, words, pooling
        self.max_tokens = 1 << 30

    def forward(self, tokens: Tokens) -> Encoding:
        """Encode a batch; ``hidden`` is the words (B, T, d), then the states (B, T, D), zeros at padding."""
        mask_BT = tokens.attention_mask_BT
        words_BTH = self.dropout(self.words(tokens.input_ids_BT))
        (states_BTD,) = self.recurrence(words_BTH, mask_BT)
        vectors_BD = self.recurrence.pooled(self.pooling, states_BTD, mask_BT)
        states_BTD = states_BTD.masked_fill(mask_BT.unsqueeze(-1) == 0, 0.0)
        return Encoding(_finish(vectors_BD, self.normalize), (words_BTH, states_BTD), mask_BT)

    def stock_modules(self) -> Sequence[StockModule]:
        """List word embeddings, LSTM and pooling.

        Raises:
            BadInput: It pools the last states, which no stock module does.
        """
        require_stock_pooling("SimpleLSTM", self.pooling)
        return WordEmbeddings(self.words), LSTM(self.recurrence), Pooling(self.dim, self.pooling)


class SeparateTowers(TowerStudent):
    """A tower for claims and another for documents, over the same words if these are not trained.

    Both towers start from the weights that one tower for both sides would have; training separates them.

    Attributes:
        claims: The tower of the column ``claim``.
        documents: The tower of every other column.
    """

    version: ClassVar[int] = 1

    def __init__(self, tower: Spec[SimpleCNN] | Spec[SimpleLSTM]) -> None:
        """Build both towers.

        Raises:
            BadInput: As the tower.
        """
        super().__init__()
        self.claims: SimpleCNN | SimpleLSTM = tower.build()
        self.documents: SimpleCNN | SimpleLSTM = tower.build()
        if not self.documents.words.weight.requires_grad:
            self.claims.words = self.documents.words
        self.dim, self.tokenizer = self.documents.dim, self.documents.tokenizer
        self.max_tokens, self.normalize = self.documents.max_tokens, self.documents.normalize

    def tower(self, column: str) -> SimpleCNN | SimpleLSTM:
        """Return the tower that encodes a column, or a folder of an export."""
        return self.claims if column in ("claim", SIDES[0]) else self.documents

    def forward(self, tokens: Tokens) -> Encoding:
        """Encode a batch of documents."""
        encoding: Encoding = self.documents(tokens)
        return encoding

    def stock_modules(self) -> Sequence[StockModule]:
        """List the modules of the documents' tower."""
        return self.documents.stock_modules()


def _finish(vectors_BD: Tensor, normalize: bool) -> Tensor:
    """Convert the embedding to float32 or wider, also under autocast, and normalise it."""
    vectors_BD = vectors_BD.to(torch.promote_types(vectors_BD.dtype, torch.float32))
    return functional.normalize(vectors_BD, dim=-1) if normalize else vectors_BD
