"""A bidirectional LSTM over word vectors: the student of SRA (Wu et al., ACL 2020, section 3.1).

The LSTM encodes a text into H; a linear layer without bias and tanh map H into the teacher's dimension.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.core.types import Encoding, LazyStates, Tokens
from stillhouse.plan.data import Model
from stillhouse.students.output_head import check_states
from stillhouse.students.pooling import maximum, mean

POOLINGS = ("last", "mean", "max")


class BiLSTMStudent(nn.Module):
    """Word vectors, bidirectional LSTM, pooling, W and tanh.

    With GloVe's 300 dimensions, 512 units a side and a teacher of 768 dimensions it has 4 120 576 parameters
    beside the word vectors: 3 334 144 of the LSTM, which as in cuDNN has two bias vectors a gate, and 786 432
    of W.

    Attributes:
        words: The vectors, V x d; row 0 is padding.
        forwards, backwards: One LSTM a layer, for each side.
        projection: W, 2 · hidden → D without bias.
        dim: D.
        hidden_size: 2 · hidden, both sides of a state.
        max_tokens: No position ends the texts: more than any text has.
        tokenizer: The model that the words are of.
    """

    version: ClassVar[int] = 1

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
            words: A folder of word vectors (`stillhouse.corpora.word_vectors`).
            hidden: Units a side.
            dim: D, the teacher's dimension.
            pooling: ``last``: the last state of each side, which has read the whole text (the paper says only
                "a fixed-size vector H"). ``mean`` and ``max``: over the states of all words.
            layers: LSTMs one above the other.
            freeze_words: Leave the word vectors as they are.
            dropout: On the word vectors and between layers.
            seed: Of the random weights. The global random state is left as it was.

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
        widths = [width, *[2 * hidden] * (layers - 1)]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.forwards, self.backwards = (
                nn.ModuleList(nn.LSTM(size, hidden, batch_first=True) for size in widths) for _ in range(2)
            )
            self.projection = nn.Linear(2 * hidden, dim, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.dim, self.hidden_size, self.pooling = dim, 2 * hidden, pooling
        self.max_tokens = 1 << 30
        self.tokenizer = words
        self.train()

    def embed_words(self, ids_N: Tensor) -> Tensor:
        """Word vectors of token ids, (N, d): one look-up for what `forward` may be given in parts."""
        words_NH: Tensor = self.words(ids_N)
        return words_NH

    def forward(self, tokens: Tokens, words_BTH: Tensor | None = None) -> Encoding:
        """Encode a batch, in float32 also under autocast; a text without words is zeros.

        cuDNN's LSTM would run in float16 under autocast to bfloat16, and lose small gradients.

        Args:
            tokens: The batch.
            words_BTH: Its word vectors, where they are looked up already; those of padding do not matter.

        Returns:
            ``hidden[0]`` are the word vectors, (B, T, d); the others (B, T, 2 · hidden), zeros at padding.
        """
        mask_BT = tokens.attention_mask_BT
        states = [self.embed_words(tokens.input_ids_BT) if words_BTH is None else words_BTH]
        places_BT1 = _mirrored(mask_BT).unsqueeze(-1)
        with torch.autocast(mask_BT.device.type, enabled=False):
            for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
                states.append(self._layer(forwards, backwards, self.dropout(states[-1]), places_BT1))
            embedding_BD = torch.tanh(self.projection(self._pooled(states[-1], mask_BT)))
        padding_BT1 = mask_BT.unsqueeze(-1) == 0
        hidden = LazyStates(len(states), lambda layer: states[layer].masked_fill(padding_BT1, 0.0))
        return Encoding(embedding_BD, hidden, mask_BT)

    def _layer(
        self, forwards: nn.Module, backwards: nn.Module, states_BTH: Tensor, places_BT1: Tensor
    ) -> Tensor:
        """Both sides, each reading a text from its own end: padding comes last, so no state has read any.

        Twice as quick on a CPU as one LSTM over packed texts, and a GPU need not wait for the lengths.
        """
        from_left_BTH, _ = forwards(states_BTH)
        mirrored_BTH = states_BTH.gather(1, places_BT1.expand_as(states_BTH))
        from_right_BTH, _ = backwards(mirrored_BTH)
        from_right_BTH = from_right_BTH.gather(1, places_BT1.expand_as(from_right_BTH))
        return torch.cat([from_left_BTH, from_right_BTH], dim=-1)

    def _pooled(self, states_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        match self.pooling:
            case "mean":
                return mean(states_BTH, mask_BT)
            case "max":
                return maximum(states_BTH, mask_BT)
        return _last(states_BTH, mask_BT)


def _mirrored(mask_BT: Tensor) -> Tensor:
    """For each place the one as far from the other end of its text; padding stays where it is."""
    places_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    return torch.where(mask_BT > 0, mask_BT.sum(dim=1, keepdim=True) - 1 - places_T, places_T)


def _last(states_BTH: Tensor, mask_BT: Tensor) -> Tensor:
    """What each side says once it has read the whole text, (B, H); zeros for a text without words."""
    from_left_BTH, from_right_BTH = states_BTH.chunk(2, dim=-1)
    lengths_B = mask_BT.sum(dim=1)
    rows_B = torch.arange(mask_BT.shape[0], device=mask_BT.device)
    ends_BH = torch.cat([from_left_BTH[rows_B, (lengths_B - 1).clamp(min=0)], from_right_BTH[:, 0]], dim=-1)
    return ends_BH.masked_fill(lengths_B.unsqueeze(-1) == 0, 0.0)


def _load_words(words: Model) -> Tensor:
    from safetensors.torch import load_file

    file = Path(words.path) / "model.safetensors"
    remedy = "Make one from a file of vectors, or from the words of a corpus."
    held: dict[str, Any] = load_file(file) if file.is_file() else {}
    require(
        set(held) == {"words"},
        "a folder of word vectors holds one tensor, `words`",
        folder=words.name or words.path,
        tensors=sorted(held)[:3],
        remedy=remedy,
    )
    vectors_VD: Tensor = held["words"]
    return vectors_VD.float()
