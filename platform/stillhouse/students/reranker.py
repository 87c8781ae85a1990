"""The reranker that teaches: it reads a query together with its passage, or with each of its hard negatives.

B  queries    K  hard negatives per query    T  tokens of the longest text
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillhouse.core.types import Tokens
from stillhouse.students.pair_transformer import TransformerScorer
from stillhouse.values.data import Model


class PairReranker(nn.Module):
    """A `TransformerScorer` for labelled pairs with hard negatives.

    Attributes:
        scorer: An encoder of both texts, a mean and a linear layer.
        dim: 1, a score.
        tokenizer: The model whose folder holds the tokenizer's files.
    """

    version: ClassVar[int] = 1
    joint_columns: ClassVar[tuple[str, ...]] = ("query", "passage", "negatives")

    def __init__(
        self, base: Model, layers: Sequence[int] | None = None, dropout: float | None = None, seed: int = 0
    ) -> None:
        """Load the encoder; the linear layer is random. Arguments and errors are those of the scorer."""
        super().__init__()
        self.scorer = TransformerScorer(base, layers, dropout, seed)
        self.dim, self.tokenizer = self.scorer.dim, self.scorer.tokenizer

    def forward(self, query: Tokens, passage: Tokens, negatives: Tokens | None = None) -> Tensor:
        """Score the candidates of B queries: B passages, of which row i answers query i, and hard negatives.

        Of the B · K hard negatives the K of a query are adjacent; None for none.

        Returns:
            (B, 1 + K), the score of the passage first; higher is more relevant.
        """
        scores_BC: Tensor = self.scorer(query, passage if negatives is None else beside(passage, negatives))
        return scores_BC


def beside(passage: Tokens, negatives: Tokens) -> Tokens:
    """Put every passage in front of its own hard negatives, as one padded batch of B · (1 + K) texts."""
    longest = max(passage.input_ids_BT.shape[1], negatives.input_ids_BT.shape[1])

    def joined(first_BT: Tensor, others_MT: Tensor) -> Tensor:
        first_BT, others_MT = (F.pad(ids, (0, longest - ids.shape[1])) for ids in (first_BT, others_MT))
        others_BKT = others_MT.view(len(first_BT), -1, longest)
        return torch.cat([first_BT[:, None], others_BKT], dim=1).flatten(0, 1)

    return Tokens(
        joined(passage.input_ids_BT, negatives.input_ids_BT),
        joined(passage.attention_mask_BT, negatives.attention_mask_BT),
    )
