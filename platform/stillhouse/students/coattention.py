"""The teacher of retrieval distillation: a scorer that reads a document together with the claim.

Shakeri et al., Knowledge Distillation in Document Retrieval, §3.1: the dynamic coattention network of Xiong
et al. (arXiv:1611.01604) "without highway maxout network layers", "modified to be used in our <d, c>
classification task". The modification is not described; here it is the maximum over the document's states
and an MLP. The defaults have 2.84 M parameters in addition to 300-d word vectors (the paper: 2.85 M).

B  claims                 C  candidates per claim    M  documents of the batch, B · C
T  words of a document    S  words of a claim        U  units

T and S include the sentinel, if one precedes the words.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.core.types import Tokens
from stillhouse.students.lstm import MaskedLSTM
from stillhouse.students.pair_scorer import candidates_per_claim
from stillhouse.students.pooling import maximum
from stillhouse.students.words import seeded, word_embedding
from stillhouse.values.data import Model


class CoattentionScorer(nn.Module):
    """A scorer of how relevant a document is to a claim.

    D and Q are the states of the document and of the claim, each preceded by a sentinel that a word may
    attend to instead of any word of the other text:

        L = DᵀQ    A^Q = softmax(L) over the document    A^D = softmax(Lᵀ) over the claim
        C^Q = D A^Q    C^D = [Q; C^Q] A^D    u_t = BiLSTM([d_t; c^D_t])    score = MLP(max_t u_t)

    Attributes:
        words: Word vectors.
        encoder: The LSTM that reads both texts.
        query: W^Q and b^Q of Q = tanh(W^Q Q' + b^Q), which lets the two texts differ.
        sentinels: The sentinel of the claim and that of the document, (2, U).
        fusion: The BiLSTM.
        head: The MLP.
        dim: 1, a score.
        tokenizer: The folder of words.
    """

    version: ClassVar[int] = 2
    joint_columns: ClassVar[tuple[str, ...]] = ("claim", "documents")

    def __init__(
        self,
        words: Model,
        units: int = 256,
        head_units: int = 200,
        word_dim: int | None = None,
        train_words: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Build the scorer.

        Args:
            words: A folder with ``tokenizer.json`` and, unless they are trained, word vectors.
            units: U, the units per direction of both LSTMs.
            head_units: Units of the MLP's hidden layer.
            word_dim: d; None takes that of the folder's vectors, and 300 without any.
            train_words: Train the word vectors too.
            dropout: Dropout of the word vectors and of the MLP's input.
            seed: Seed of all random weights. The global random state is left unchanged.

        Raises:
            BadInput: A value out of range, or a folder without a vocabulary.
        """
        super().__init__()
        require(units >= 1, "units >= 1", units=units)
        require(head_units >= 1, "head_units >= 1", head_units=head_units)
        require(0 <= dropout < 1, "0 <= dropout < 1", dropout=dropout)
        with seeded(seed):
            self.words = word_embedding(words, dim=word_dim, trained=train_words)
            self.encoder = MaskedLSTM(self.words.embedding_dim, units, bidirectional=False)
            self.query = nn.Linear(units, units)
            self.sentinels = nn.Parameter(torch.randn(2, units) * 0.1)
            self.fusion = MaskedLSTM(3 * units, units)
            self.head = nn.Sequential(nn.Linear(2 * units, head_units), nn.ReLU(), nn.Linear(head_units, 1))
        self.dropout, self.dim, self.tokenizer = nn.Dropout(dropout), 1, words

    def forward(self, claim: Tokens, documents: Tokens) -> Tensor:
        """Score the own candidates of B claims: of B · C documents, the C that are adjacent.

        Returns:
            (B, C), float32 or wider; higher is more relevant.

        Raises:
            BadInput: The number of documents is not a multiple of the number of claims.
        """
        each = candidates_per_claim(claim, documents)
        queries_BSU, claim_mask_BS = self._encode(claim, self.sentinels[0])
        queries_BSU = torch.tanh(self.query(queries_BSU))
        documents_MTU, mask_MT = self._encode(documents, self.sentinels[1])
        queries_MSU, claim_mask_MS = (
            states.repeat_interleave(each, dim=0) for states in (queries_BSU, claim_mask_BS)
        )
        seen_MTU = _coattention(queries_MSU, claim_mask_MS, documents_MTU, mask_MT)
        # The sentinel comes first; it has been attended to, and is not a word of the document.
        (fused_MTU,) = self.fusion(torch.cat([documents_MTU, seen_MTU], dim=-1)[:, 1:], mask_MT[:, 1:])
        pooled_MU = self.dropout(maximum(fused_MTU, mask_MT[:, 1:]))
        scores_M: Tensor = self.head(pooled_MU).squeeze(-1)
        return scores_M.to(torch.promote_types(scores_M.dtype, torch.float32)).view(-1, each)

    def _encode(self, tokens: Tokens, sentinel_U: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states, preceded by the sentinel, and their mask."""
        mask_BT = tokens.attention_mask_BT
        (states_BTU,) = self.encoder(self.dropout(self.words(tokens.input_ids_BT)), mask_BT)
        states_BTU = states_BTU.masked_fill(mask_BT.unsqueeze(-1) == 0, 0.0)
        first_B1U = sentinel_U.to(states_BTU.dtype).expand(len(mask_BT), 1, -1)
        return torch.cat([first_B1U, states_BTU], dim=1), nn.functional.pad(mask_BT, (1, 0), value=1)


def _coattention(
    queries_MSU: Tensor, claim_mask_MS: Tensor, documents_MTU: Tensor, mask_MT: Tensor
) -> Tensor:
    """Compute C^D: for every word of the document, the claim and the claim's summary of the document."""
    affinity_MTS = documents_MTU @ queries_MSU.transpose(1, 2)
    over_document_MTS = affinity_MTS.masked_fill(mask_MT[:, :, None] == 0, float("-inf")).softmax(dim=1)
    over_claim_MTS = affinity_MTS.masked_fill(claim_mask_MS[:, None, :] == 0, float("-inf")).softmax(dim=2)
    summaries_MSU = over_document_MTS.transpose(1, 2).to(documents_MTU.dtype) @ documents_MTU
    both_MSU = torch.cat([queries_MSU, summaries_MSU.to(queries_MSU.dtype)], dim=-1)
    return over_claim_MTS.to(both_MSU.dtype) @ both_MSU
