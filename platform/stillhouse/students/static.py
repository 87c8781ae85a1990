"""A table of token vectors and a mean: cheaper than any transformer.

The table starts from the word table of a base model, or from the model's output for each token alone. Weights
by frequency: Arora et al., A Simple but Tough-to-Beat Baseline for Sentence Embeddings, ICLR 2017.

V  tokens of the vocabulary    H  hidden size of the base model    D  dimension of the table
"""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import Encoding, StockModule, Tokens
from stillhouse.losses.pca import Projection, fit_pca
from stillhouse.students.backbone import transformer_folder
from stillhouse.students.export.folder_modules import COMPACT, UNTIED, StaticEmbedding, output_modules
from stillhouse.students.output_head import check_states, finish, make_projection
from stillhouse.students.pooling import POOLER, POOLINGS, mean
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Model

STARTS = ("words", "contextless")
_ROWS_AT_ONCE = 512


class StaticStudent(nn.Module):
    """The mean of the vectors of a text's tokens; special tokens around the text do not count.

    Attributes:
        words: The table, (V, D).
        projection: W_proj (IBKD, eq. 11), D → D' without bias; None if the mean is the embedding.
        activation: The activation after the projection, which then has a bias; None for no activation.
        dim: D, or D' after a projection.
        hidden_size: D.
        max_tokens: Larger than any text: there are no positions that could run out.
        tokenizer: The base model; its path holds the tokenizer's files.
    """

    version: ClassVar[int] = 2
    export_sides: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        base: Model,
        dim: int = 0,
        start: str = "words",
        pooling: str = "mean",
        zipf: float = 0.0,
        normalize: bool = True,
        projection: int | None = None,
        projection_activation: str = "",
        seed: int = 0,
    ) -> None:
        """Build the table.

        Args:
            base: A folder of sentence-transformers or of a plain Hugging Face encoder.
            dim: D, by centred PCA of the table; 0 keeps H.
            start: ``words``: the base model's word vectors, layer 0 without positions. ``contextless``: every
                token goes through the base model alone, between its special tokens; usually the better start,
                at the cost of a forward pass over 3 · V tokens (once per process).
            pooling: Pooling of the base model's states for ``contextless``, as in `TransformerStudent`; the
                vectors of a text's tokens are always averaged.
            zipf: Parameter a of the weights a / (a + p), which reduce frequent tokens; p ∝ 1 / rank by Zipf's
                law. The vocabulary is assumed to be in order of frequency, as most nearly are. Arora et al.
                use 1e-4 to 1e-3; 0 disables the weights. They are folded into the table.
            normalize: Return vectors of length 1.
            projection: Dimension after W_proj, as in `TransformerStudent`; None omits it.
            projection_activation: ``tanh`` after a projection with a bias (HPD's dense layer), or empty.
            seed: Seed of the projection's first weights; the table is not random.

        Raises:
            BadInput: A value out of range, or an unsuitable base.
        """
        super().__init__()
        require(start in STARTS, f"start in {STARTS}", start=start)
        check_states(pooling=pooling, poolings=(*POOLINGS, POOLER))
        require(dim >= 0, "dim >= 0", dim=dim)
        require(zipf >= 0, "zipf >= 0", zipf=zipf)
        self.tokenizer = dataclasses.replace(base, path=str(transformer_folder(base)))
        table_VD = _words(base) if start == "words" else _contextless(base, pooling)
        if dim:
            table_VD = _projected(table_VD, dim)
        if zipf:
            table_VD = table_VD * _zipf_weights(len(table_VD), zipf)[:, None]
        self.words = nn.Embedding(len(table_VD), table_VD.shape[1], _weight=table_VD.clone())
        self.hidden_size = table_VD.shape[1]
        self.projection, self.activation = make_projection(
            self.hidden_size, projection, projection_activation, seed
        )
        self.dim = projection or self.hidden_size
        self.normalize, self.max_tokens = normalize, sys.maxsize
        before, after = _special_tokens(self.tokenizer)
        self._before, self._after = len(before), len(after)

    def embed_words(self, ids_N: Tensor) -> Tensor:
        """Look up the vectors of token ids, (N, D), once for several calls of `forward`."""
        words_ND: Tensor = self.words(ids_N)
        return words_ND

    def forward(self, tokens: Tokens, words_BTH: Tensor | None = None) -> Encoding:
        """Encode a batch, special tokens included; a text without tokens of its own gives zeros.

        Token vectors that are looked up already may be given; those of padding do not matter.

        Returns:
            The embedding, float32 or wider, and the token vectors as the only hidden state.
        """
        words_BTD = self.embed_words(tokens.input_ids_BT) if words_BTH is None else words_BTH
        vector_BD = mean(words_BTD, self._inside(tokens.attention_mask_BT))
        embedding_BD = finish(vector_BD, self.projection, self.activation, normalize=self.normalize)
        return Encoding(embedding_BD, (words_BTD,), tokens.attention_mask_BT)

    def stock_modules(self) -> Sequence[StockModule]:
        """List the table, and the projection and the norm if present."""
        return (
            StaticEmbedding(self.words),
            *output_modules(self.projection, self.activation, normalize=self.normalize),
        )

    def why_not(self, form: str) -> str:
        """Say why it cannot be exported in a form; empty if it can."""
        return UNTIED if form == COMPACT else ""

    def _inside(self, mask_BT: Tensor) -> Tensor:
        """Mark the tokens of the text itself. By position: a text may spell out a special token."""
        places_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
        ends_B1 = mask_BT.sum(dim=1, keepdim=True) - self._after
        return ((places_T >= self._before) & (places_T < ends_B1)).to(mask_BT.dtype)


def _words(base: Model) -> Tensor:
    backbone = TransformerStudent(base).backbone
    table_VH: Tensor = backbone.get_input_embeddings().weight.detach()
    return table_VH


# A plan builds its student several times per process; this pass is the expensive part of it.
@functools.lru_cache(maxsize=1)
def _contextless(base: Model, pooling: str) -> Tensor:
    teacher = TransformerStudent(base, pooling=pooling, normalize=False).eval()
    before, after = (torch.tensor(ids, dtype=torch.int64) for ids in _special_tokens(teacher.tokenizer))
    vectors = []
    with torch.no_grad():
        for ids_B in torch.split(torch.arange(len(_words(base))), _ROWS_AT_ONCE):
            parts = [before.expand(len(ids_B), -1), ids_B[:, None], after.expand(len(ids_B), -1)]
            ids_BT = torch.cat(parts, dim=1)
            vectors.append(teacher(Tokens(ids_BT, torch.ones_like(ids_BT))).embedding_BD)
    return torch.cat(vectors)


def _projected(table_VH: Tensor, dim: int) -> Tensor:
    blocks = (block.numpy() for block in torch.split(table_VH, _ROWS_AT_ONCE))
    projected_VD: Tensor = Projection(*fit_pca(blocks, dim, rows=0))(table_VH)
    return projected_VD


def _zipf_weights(rows: int, scale: float) -> Tensor:
    frequency_V = 1 / torch.arange(1, rows + 1, dtype=torch.float64)
    return (scale / (scale + frequency_V / frequency_V.sum())).float()


def _special_tokens(tokenizer: Model) -> tuple[list[int], list[int]]:
    return FastTokenizer(Path(tokenizer.path), 8).special_tokens_around()
