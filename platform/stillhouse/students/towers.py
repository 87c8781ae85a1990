"""The students of retrieval distillation: a convolution or a recurrence over word vectors.

Shakeri et al., Knowledge Distillation in Document Retrieval, §3.2: "single layer CNN and LSTM models",
"separately applied to claim and document to create the encodings". One tower encodes both sides, each without
the other, so that documents can be indexed; `stillhouse.losses.pair_head` joins the two vectors. The paper
gives no sizes but 141 k parameters for SimpleLSTM: over fixed 300-d word vectors, the defaults
here have 140 800.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from stillhouse.core.errors import require
from stillhouse.core.types import Encoding, Tokens
from stillhouse.plan.data import Model
from stillhouse.students.pooling import maximum, pool
from stillhouse.students.words import run_lstm, seeded, word_embedding

POOLINGS = ("last", "mean", "max")


class SimpleCNN(nn.Module):
    """Convolution over the words, ReLU, the maximum over the text.

    Attributes:
        words: Word vectors.
        convolution: d → D over ``width`` neighbouring words; beyond a text's ends stand zeros.
        dim: D, the number of filters.
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
            width: Words that a filter sees; odd.
            word_dim: d; None takes that of the folder's vectors, and 300 without any.
            train_words: Change the word vectors too.
            dropout: Of the word vectors.
            normalize: Give vectors of length 1; the paper's are not.
            seed: Of everything random here. The global random state is left as it was.

        Raises:
            BadInput: A value out of range, or a folder that is not one of words.
        """
        super().__init__()
        require(filters >= 1, "filters >= 1", filters=filters)
        require(width >= 1 and width % 2 == 1, "width of a filter is odd", width=width)
        require(0 <= dropout < 1, "0 <= dropout < 1", dropout=dropout)
        with seeded(seed):
            self.words = word_embedding(words, dim=word_dim, trained=train_words)
            self.convolution = nn.Conv1d(self.words.embedding_dim, filters, width, padding=width // 2)
        self.dropout, self.normalize = nn.Dropout(dropout), normalize
        self.dim, self.tokenizer = filters, words

    def forward(self, tokens: Tokens) -> Encoding:
        """Encode a batch; ``hidden`` is the words (B, T, d), then the filters' answers (B, T, D)."""
        mask_BT = tokens.attention_mask_BT
        words_BTH = self.dropout(self.words(tokens.input_ids_BT))
        # Padding must look like what lies beyond the end of a text: zeros.
        inputs_BTH = words_BTH.masked_fill(mask_BT.unsqueeze(-1) == 0, 0.0)
        states_BTD = functional.relu(self.convolution(inputs_BTH.transpose(1, 2)).transpose(1, 2))
        return Encoding(
            _finish(maximum(states_BTD, mask_BT), self.normalize), (words_BTH, states_BTD), mask_BT
        )


class SimpleLSTM(nn.Module):
    """An LSTM over the words; the paper does not say how its states become a vector.

    Attributes:
        words: Word vectors.
        recurrence: One layer.
        dim: D, units times directions.
        tokenizer: The folder of words.
    """

    version: ClassVar[int] = 1

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
            units: Of each direction.
            bidirectional: Read the text from both ends.
            pooling: ``last``: the last state of each direction. ``mean`` and ``max``: over all words.
            word_dim: d; None takes that of the folder's vectors, and 300 without any.
            train_words: Change the word vectors too.
            dropout: Of the word vectors.
            normalize: Give vectors of length 1; the paper's are not.
            seed: Of everything random here. The global random state is left as it was.

        Raises:
            BadInput: A value out of range, or a folder that is not one of words.
        """
        super().__init__()
        require(units >= 1, "units >= 1", units=units)
        require(pooling in POOLINGS, f"pooling in {POOLINGS}", pooling=pooling)
        require(0 <= dropout < 1, "0 <= dropout < 1", dropout=dropout)
        with seeded(seed):
            self.words = word_embedding(words, dim=word_dim, trained=train_words)
            self.recurrence = nn.LSTM(
                self.words.embedding_dim, units, batch_first=True, bidirectional=bidirectional
            )
        self.dropout, self.normalize = nn.Dropout(dropout), normalize
        self.dim, self.tokenizer, self.pooling = units * (1 + bidirectional), words, pooling

    def forward(self, tokens: Tokens) -> Encoding:
        """Encode a batch; ``hidden`` is the words (B, T, d), then the states (B, T, D)."""
        mask_BT = tokens.attention_mask_BT
        words_BTH = self.dropout(self.words(tokens.input_ids_BT))
        states_BTD, vectors_BD = run_lstm(self.recurrence, words_BTH, mask_BT)
        if self.pooling != "last":
            vectors_BD = pool(self.pooling, states_BTD, mask_BT)
        return Encoding(_finish(vectors_BD, self.normalize), (words_BTH, states_BTD), mask_BT)


def _finish(vectors_BD: Tensor, normalize: bool) -> Tensor:
    """The embedding, float32 or wider also under autocast."""
    vectors_BD = vectors_BD.to(torch.promote_types(vectors_BD.dtype, torch.float32))
    return functional.normalize(vectors_BD, dim=-1) if normalize else vectors_BD
