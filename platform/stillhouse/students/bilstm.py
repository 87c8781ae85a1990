"""A bidirectional LSTM over word vectors: the student of SRA (Wu et al., ACL 2020, section 3.1).

The LSTM encodes a text into H; a linear layer without bias and tanh map H into the teacher's dimension.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.tensors import read_tensors
from stillhouse.core.types import Encoding, LazyStates, StockModule, Tokens
from stillhouse.students.export.folder_modules import (
    COMPACT,
    LSTM,
    STOCK,
    UNTIED,
    Dense,
    Pooling,
    WordEmbeddings,
    require_stock_pooling,
)
from stillhouse.students.lstm import POOLINGS, MaskedLSTM
from stillhouse.students.output_head import check_states
from stillhouse.students.words import seeded
from stillhouse.values.data import Model


class BiLSTMStudent(nn.Module):
    """Word vectors, bidirectional LSTM, pooling, W and tanh.

    With GloVe's 300 dimensions, 512 units per direction and a teacher of 768 dimensions it has 4 120 576
    parameters excluding the word vectors: 3 334 144 in the LSTM, which as in cuDNN has two bias vectors per
    gate, and 786 432 in W.

    Attributes:
        words: The vectors, V x d; row 0 is padding.
        lstm: The recurrence.
        projection: W, 2 · hidden → D without bias.
        dim: D.
        hidden_size: 2 · hidden, both directions of a state.
        max_tokens: Larger than any text: there are no positions that could run out.
        tokenizer: The folder of the word vectors, which also holds the tokenizer.
    """

    version: ClassVar[int] = 2
    export_sides: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        words: Model,
        hidden: int = 512,
        dim: int = 768,
        pooling: str = "last",
        layers: int = 1,
        freeze_words: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Load the word vectors; all other weights are random.

        Args:
            words: A folder of word vectors (`stillhouse.corpora.word_vector_files`).
            hidden: Units per direction.
            dim: D, the teacher's dimension.
            pooling: ``last``: the last state of each direction, which has read the whole text (the paper says
                only "a fixed-size vector H"). ``mean`` and ``max``: over the states of all words.
            layers: Number of stacked LSTMs.
            freeze_words: Keep the word vectors fixed.
            dropout: Dropout of the word vectors and between layers.
            seed: Seed of the random weights. The global random state is left unchanged.

        Raises:
            BadInput: A value out of range, or a folder without word vectors.
        """
        super().__init__()
        check_states(pooling=pooling, dropout=dropout, poolings=POOLINGS)
        require(
            min(hidden, dim, layers) >= 1,
            "hidden, dim and layers >= 1",
            hidden=hidden,
            dim=dim,
            layers=layers,
        )
        vectors_VD = _load_words(words)
        vocabulary, width = vectors_VD.shape
        self.words = nn.Embedding(vocabulary, width, padding_idx=0, device="meta")
        self.words.weight = nn.Parameter(vectors_VD, requires_grad=not freeze_words)
        with seeded(seed):
            self.lstm = MaskedLSTM(width, hidden, layers=layers)
            self.projection = nn.Linear(2 * hidden, dim, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.dim, self.hidden_size, self.pooling = dim, 2 * hidden, pooling
        self.max_tokens = 1 << 30
        self.tokenizer = words
        self.train()

    def embed_words(self, ids_N: Tensor) -> Tensor:
        """Look up the word vectors of token ids, (N, d), once for several calls of `forward`."""
        words_NH: Tensor = self.words(ids_N)
        return words_NH

    def forward(self, tokens: Tokens, words_BTH: Tensor | None = None) -> Encoding:
        """Encode a batch, in float32 also under autocast; a text without words gives zeros.

        Word vectors that are looked up already may be given; those of padding do not matter.

        Returns:
            ``hidden[0]`` holds the word vectors, (B, T, d); the others are (B, T, 2 · hidden), zeros at
            padding.
        """
        mask_BT = tokens.attention_mask_BT
        states = [self.embed_words(tokens.input_ids_BT) if words_BTH is None else words_BTH]
        states += self.lstm(states[0], mask_BT, self.dropout)
        with torch.autocast(mask_BT.device.type, enabled=False):
            pooled_BH = self.lstm.pooled(self.pooling, states[-1], mask_BT)
            embedding_BD = torch.tanh(self.projection(pooled_BH))
        padding_BT1 = mask_BT.unsqueeze(-1) == 0
        hidden = LazyStates(len(states), lambda layer: states[layer].masked_fill(padding_BT1, 0.0))
        return Encoding(embedding_BD, hidden, mask_BT)

    def stock_modules(self) -> Sequence[StockModule]:
        """List word embeddings, LSTM, pooling and a dense layer.

        Raises:
            BadInput: It pools the last states, which no stock module does.
        """
        require_stock_pooling("BiLSTM", self.pooling)
        return (
            WordEmbeddings(self.words),
            LSTM(self.lstm),
            Pooling(self.hidden_size, self.pooling),
            Dense(self.projection, nn.Tanh()),
        )

    def why_not(self, form: str) -> str:
        """Say why it cannot be exported in a form; empty if it can."""
        if form == STOCK and self.pooling == "last":
            return "it pools the last state of each direction, which no stock module does"
        return UNTIED if form == COMPACT else ""


def _load_words(words: Model) -> Tensor:
    file = Path(words.path) / "model.safetensors"
    tensors: dict[str, Any] = read_tensors(file) if file.is_file() else {}
    if set(tensors) != {"words"}:
        raise BadInput(
            f"A folder of word vectors must hold one tensor, `words`, but {words.name or words.path} holds "
            f"{sorted(tensors)[:3]}. Create the folder from a file of vectors, or from the words of a corpus."
        )
    vectors_VD: Tensor = tensors["words"]
    return vectors_VD.float()
