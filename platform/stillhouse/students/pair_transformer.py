"""A transformer that reads claim and document as one text: the second teacher of retrieval distillation.

Shakeri et al., Knowledge Distillation in Document Retrieval, §3.1: a Transformer "modified to be used in our
<d, c> classification task". The paper's model starts from random weights and is not described; this one
starts from the weights of a published encoder.

B  claims    C  candidates per claim    M  documents of the batch, B · C    T  tokens of the longest pair
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from stillhouse.core.types import Tokens
from stillhouse.students.pair_scorer import candidates_per_claim
from stillhouse.students.transformer import TransformerStudent
from stillhouse.students.words import seeded
from stillhouse.values.data import Model


class TransformerScorer(nn.Module):
    """A scorer of how relevant a document is to a claim: an encoder of both, a mean and a linear layer.

    The claim keeps its special tokens and the document its last one: ``[CLS] claim [SEP] document [SEP]``.
    Both texts have the same token type. Tokens beyond the model's positions are cut off the document.

    Attributes:
        encoder: The transformer.
        head: H → 1.
        dim: 1, a score.
        tokenizer: The model whose folder holds the tokenizer's files.
    """

    version: ClassVar[int] = 1
    joint_columns: ClassVar[tuple[str, ...]] = ("claim", "documents")

    def __init__(
        self, base: Model, layers: Sequence[int] | None = None, dropout: float | None = None, seed: int = 0
    ) -> None:
        """Load the encoder; the linear layer is random.

        Args:
            base: A folder of sentence-transformers or of a plain Hugging Face encoder.
            layers: Layers of the base to keep; None keeps all.
            dropout: Replaces every dropout rate of the base; None keeps them.
            seed: Seed of the linear layer. The global random state is left unchanged.

        Raises:
            BadInput: A layer the model does not have, or a base that cannot be read.
        """
        super().__init__()
        self.encoder = TransformerStudent(base, layers, normalize=False, dropout=dropout, seed=seed)
        with seeded(seed):
            self.head = nn.Linear(self.encoder.hidden_size, 1)
        self.dim, self.tokenizer = 1, self.encoder.tokenizer

    def forward(self, claim: Tokens, documents: Tokens) -> Tensor:
        """Score the own candidates of B claims: of B · C documents, the C that are adjacent.

        Returns:
            (B, C), float32 or wider; higher is more relevant.

        Raises:
            BadInput: The number of documents is not a multiple of the number of claims.
        """
        each = candidates_per_claim(claim, documents)
        pairs = join_pairs(claim, documents, self.encoder.max_tokens)
        states_MH = self.encoder(pairs).embedding_BD
        with torch.autocast(states_MH.device.type, enabled=False):
            scores_M: Tensor = self.head(states_MH).squeeze(-1)
        return scores_M.view(-1, each)


def join_pairs(claim: Tokens, documents: Tokens, max_tokens: int) -> Tokens:
    """Append every document to its claim, without the document's first token, as one padded batch.

    The C candidates of a claim are adjacent. Documents are truncated to ``max_tokens`` per pair.
    """
    each = len(documents.input_ids_BT) // len(claim.input_ids_BT)
    claim_MS = claim.input_ids_BT.repeat_interleave(each, dim=0)
    first_M1 = claim.attention_mask_BT.sum(dim=1).repeat_interleave(each)[:, None]
    whole_M1 = first_M1 + documents.attention_mask_BT.sum(dim=1, keepdim=True) - 1
    lengths_M1 = whole_M1.clamp(max=max_tokens)
    places_MT = torch.arange(int(lengths_M1.max()), device=claim_MS.device).expand(len(claim_MS), -1)
    own_MT = claim_MS.gather(1, places_MT.clamp(max=claim_MS.shape[1] - 1))
    behind_MT = (places_MT - first_M1 + 1).clamp(min=0, max=documents.input_ids_BT.shape[1] - 1)
    theirs_MT = documents.input_ids_BT.gather(1, behind_MT)
    mask_MT = (places_MT < lengths_M1).long()
    return Tokens(torch.where(places_MT < first_M1, own_MT, theirs_MT), mask_MT)
