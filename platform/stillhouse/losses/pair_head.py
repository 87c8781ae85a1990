"""Scores of C candidate documents from their vectors and the vector of a claim.

Shakeri et al., Knowledge Distillation in Document Retrieval, §3.2: "A linear layer is used to join the
encodings". A document's vector never depends on the claim.

B  claims in the batch    C  candidates per claim    D  dimension of a claim's vector
F  dimension of a document's vector (D, if one student encodes both)
"""

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require
from stillhouse.losses.numerics import aligning_layer, full_precision, widen

KINDS = ("bilinear", "features", "concat")


class Joiner(nn.Module):
    """A linear layer that scores the vectors c of a claim and d of a document, in one of three ways.

    * ``bilinear``: cᵀ W d. For a fixed claim this is linear in d, so an inner-product index over the document
      vectors can be searched with `search_vector`.
    * ``features``: wᵀ [c; d; c∘d; |c−d|]. Not an inner product: documents must be scored one by one.
    * ``concat``: wᵀ [c; d], the paper's words taken literally. **It is blind to the claim**: w_cᵀ c is the
      same for all candidates, so every claim ranks the documents alike. Kept to show that, not to be used.

    A softmax over the candidates cancels w_cᵀ c of ``features`` and ``concat``, and any bias: hence there is
    no bias, and such a loss gives the claim's part of w a gradient of zero.

    Args:
        claim_dim: D.
        document_dim: F; None means D.
        kind: ``bilinear``, ``features`` or ``concat``.

    Raises:
        BadInput: The kind is unknown, a dimension is below 1, or the dimensions differ with ``features``.
    """

    def __init__(self, *, claim_dim: int, document_dim: int | None = None, kind: str = "bilinear") -> None:
        super().__init__()
        document_dim = claim_dim if document_dim is None else document_dim
        require(kind in KINDS, f"kind in {KINDS}", kind=kind)
        require(claim_dim >= 1, "claim_dim >= 1", claim_dim=claim_dim)
        require(document_dim >= 1, "document_dim >= 1", document_dim=document_dim)
        require(
            kind != "features" or claim_dim == document_dim,
            "claim_dim = document_dim with kind = features",
            claim_dim=claim_dim,
            document_dim=document_dim,
        )
        self.claim_dim, self.document_dim, self.kind = claim_dim, document_dim, kind
        if kind == "bilinear":
            self.layer: nn.Module = aligning_layer(
                claim_dim, document_dim, learnt=True, bias=False, identity_init=True
            )
        else:
            width = 4 * claim_dim if kind == "features" else claim_dim + document_dim
            self.layer = nn.Linear(width, 1, bias=False)

    def forward(self, claim_BD: Tensor, documents_BCF: Tensor) -> Tensor:
        """Compute the scores, (B, C), in float32 or wider.

        Raises:
            BadInput: The shapes do not fit.
        """
        self._check(claim_BD, documents_BCF)
        with full_precision(claim_BD):
            claim_BD, documents_BCF = widen(claim_BD), widen(documents_BCF)
            if self.kind == "bilinear":
                return torch.einsum("bf,bcf->bc", self.layer(claim_BD), documents_BCF)
            claims_BCD = claim_BD[:, None, :].expand(-1, documents_BCF.shape[1], -1)
            parts = [claims_BCD, documents_BCF]
            if self.kind == "features":
                parts += [claims_BCD * documents_BCF, (claims_BCD - documents_BCF).abs()]
            scores_BC: Tensor = self.layer(torch.cat(parts, dim=-1)).squeeze(-1)
            return scores_BC

    def search_vector(self, claim_BD: Tensor) -> Tensor:
        """Compute Wᵀ c, (B, F), whose inner product with a document's vector is the score.

        Raises:
            BadInput: The joiner is not bilinear, so no such vector exists.
        """
        require(
            self.kind == "bilinear",
            "kind = bilinear for a search by inner product",
            kind=self.kind,
            remedy="Score candidates one by one, or train a bilinear joiner.",
        )
        with full_precision(claim_BD):
            vector_BF: Tensor = self.layer(widen(claim_BD))
            return vector_BF

    def _check(self, claim_BD: Tensor, documents_BCF: Tensor) -> None:
        claim, documents = tuple(claim_BD.shape), tuple(documents_BCF.shape)
        require(
            len(claim) == 2 and len(documents) == 3 and claim[0] == documents[0],
            "shapes of claims and documents = (B, D) and (B, C, F)",
            claims=claim,
            documents=documents,
        )
        require(claim[1] == self.claim_dim, f"dimension of the claims = {self.claim_dim}", claims=claim)
        require(
            documents[2] == self.document_dim,
            f"dimension of the documents = {self.document_dim}",
            documents=documents,
        )
