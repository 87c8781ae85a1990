"""The embedding bottleneck: word vectors of B dimensions, mapped to H by one matrix.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022, §3.1.3: V·H parameters become V·B + B·H.
"""

from typing import Any

import torch
from torch import Tensor, nn

from stillhouse.core.errors import require


class FactorisedEmbedding(nn.Module):
    """Word vectors of B dimensions, mapped to H by one matrix without bias.

    The initial weights give vectors as long as those of a fresh table of H dimensions.
    """

    def __init__(self, table: nn.Embedding, bottleneck: int, scale: float, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.narrow = nn.Embedding(table.num_embeddings, bottleneck, table.padding_idx, device="meta")
        self.widen = nn.Linear(bottleneck, table.embedding_dim, bias=False, device="meta")
        self.to_empty(device=table.weight.device)
        nn.init.normal_(self.narrow.weight, std=scale, generator=generator)
        nn.init.normal_(self.widen.weight, std=bottleneck**-0.5, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids of shape (…) to vectors of shape (…, H)."""
        wide: Tensor = self.widen(self.narrow(ids))
        return wide

    @torch.no_grad()
    def approximate(self, table_VH: Tensor) -> dict[str, Tensor]:
        """Compute ``narrow.weight`` and ``widen.weight`` whose product is nearest to a table (its SVD)."""
        table = table_VH.double()
        # The right singular vectors come from the H x H moments: a table of 250 000 words needs no SVD.
        basis_HB = torch.linalg.eigh(table.T @ table)[1].flip(1)[:, : self.widen.in_features]
        signs_B = basis_HB.gather(0, basis_HB.abs().argmax(dim=0, keepdim=True)).sign()[0]
        basis_HB = basis_HB * signs_B
        kind = self.narrow.weight.dtype
        return {"narrow.weight": (table @ basis_HB).to(kind), "widen.weight": basis_HB.to(kind).contiguous()}

    def multiplied_VH(self) -> Tensor:
        """Multiply out the table of V·H that gives the same vectors."""
        return self.narrow.weight @ self.widen.weight.T


def narrow_words(backbone: Any, bottleneck: int, seed: int) -> None:
    """Replace a model's word table by a factorised one; a bottleneck of 0 keeps the table.

    Raises:
        BadInput: B is not below H.
    """
    hidden = int(backbone.config.hidden_size)
    require(0 <= bottleneck < hidden, "0 <= bottleneck < hidden size", bottleneck=bottleneck, hidden=hidden)
    if bottleneck:
        scale = float(getattr(backbone.config, "initializer_range", 0.02))
        table = backbone.get_input_embeddings()
        backbone.set_submodule(words_name(backbone), FactorisedEmbedding(table, bottleneck, scale, seed))


def words_name(backbone: Any) -> str:
    """Return the name of a model's word table."""
    table = backbone.get_input_embeddings()
    return str(next(name for name, module in backbone.named_modules() if module is table))
