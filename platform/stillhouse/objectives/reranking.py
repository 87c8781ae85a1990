"""Objectives on a reranker's scores of pairs and their hard negatives, and of training such a reranker.

The scores of a query depend on no other query, so nothing is gathered for them; InfoNCE couples the batch and
is computed over the gathered batch, see `objectives.information_bottleneck`.

B  batch    K  hard negatives per query    C = 1 + K  candidates, the passage first    D  student's dimension
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.types import Batch, Encoding, Terms, ValueArray
from stillhouse.losses.contrastive import SupervisedInfoNCE
from stillhouse.losses.numerics import unit, widen
from stillhouse.losses.softlabel import HardLabelCE, KLDivergence, MarginMSE, RelevanceBCE
from stillhouse.objectives.information_bottleneck import gather_labelled
from stillhouse.objectives.objective import Objective

SIMILARITIES = ("cosine", "dot")
_LOOKED_AT = 1 << 16
"""Rows whose scores are compared with the student's scale."""
_SHARP, _SHARE = 10.0, 5.0


class RerankedPairs(Objective):
    """The student's similarities follow the reranker's scores: ``soft``, and ``nce`` beside it.

    Columns ``query``, ``passage`` and ``negatives`` (K per query); value ``scores``, (B, 1 + K), the
    passage's first. The student's scores are s = scale · sim(query, candidate).

    Args:
        soft: The loss between the student's scores and the reranker's; None leaves it out.
        nce: InfoNCE over passages and hard negatives; None leaves it out.
        weight: Weight of ``soft``; 0 leaves it out.
        similarity: ``cosine``, or ``dot`` for the inner product.
        scale: Factor of the student's similarity in ``soft``.
        unit_vectors: Whether the student's vectors have length 1, so that their inner products are cosines;
            this changes remarks alone.

    Raises:
        BadInput: Neither term is left, a negative weight, a scale that is not positive, an unknown
            similarity, or a loss refuses an argument.
    """

    acts_through: ClassVar[Mapping[str, str]] = {
        "nce": "nce",
        **dict.fromkeys(("soft", "weight", "scale"), "soft"),
    }

    def __init__(
        self,
        *,
        soft: Spec[MarginMSE] | Spec[KLDivergence] | None = spec(MarginMSE),
        nce: Spec[SupervisedInfoNCE] | None = None,
        weight: float = 1.0,
        similarity: str = "cosine",
        scale: float = 1.0,
        unit_vectors: bool = False,
    ) -> None:
        super().__init__()
        require(weight >= 0, "weight >= 0", weight=weight)
        require(scale > 0, "scale > 0", scale=scale)
        require(similarity in SIMILARITIES, f"similarity in {SIMILARITIES}", similarity=similarity)
        self.weight, self.similarity, self.scale = weight, similarity, scale
        self.bounded = unit_vectors or similarity == "cosine"
        self.soft: MarginMSE | KLDivergence | None = soft.build() if soft is not None and weight else None
        self.nce = None if nce is None else nce.build()
        require(
            self.soft is not None or self.nce is not None,
            "an objective must have a term: weight > 0, or a contrast",
            weight=weight,
        )

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``nce`` and ``soft``, as far as they are there."""
        vectors = {name: encoding.embedding_BD for name, encoding in student.items()}
        terms = {}
        if self.nce is not None:
            terms["nce"] = self.nce(*gather_labelled(vectors, batch))
        if self.soft is not None:
            terms["soft"] = self.weight * self.soft(self.scores(vectors), batch.values["scores"])
        return terms

    def scores(self, vectors: Mapping[str, Tensor]) -> Tensor:
        """Compute the student's scores of the candidates, (B, 1 + K)."""
        query_BD, passage_BD = widen(vectors["query"]), widen(vectors["passage"])
        negatives_BKD = widen(vectors["negatives"]).view(len(query_BD), -1, query_BD.shape[-1])
        candidates_BCD = torch.cat([passage_BD[:, None], negatives_BKD], dim=1)
        if self.similarity == "cosine":
            query_BD, candidates_BCD = unit(query_BD), unit(candidates_BCD)
        return self.scale * torch.einsum("bd,bcd->bc", query_BD, candidates_BCD)

    def remarks(self, values: Mapping[str, ValueArray]) -> Iterator[str]:
        """Say where the reranker's scores are of another scale than the student's; inner products have none.

        The span of a row is its largest score less its smallest. Cosines differ by at most 2, and by much
        less among passages that are all near a query.
        """
        if self.soft is None:
            return
        span = float(np.median(np.ptp(np.asarray(values["scores"][:_LOOKED_AT], np.float64), axis=1)))
        if self.bounded and span > 0 and not self.scale / 10 <= span <= 2 * self.scale:
            so = "the student cannot reach them" if span > 2 * self.scale else "they press it together"
            yield (
                f"note: the reranker's scores of a query's candidates span {span:.3g} (median), and the "
                f"student's at most {2 * self.scale:g}, which is scale = {self.scale:g} times a difference "
                f"of cosines: {so}. Set scale={_rounded(span)}."
            )
        if isinstance(self.soft, KLDivergence) and span / self.soft.temperature > _SHARP:
            yield (
                f"note: with temperature = {self.soft.temperature:g} the reranker's scores, which span "
                f"{span:.3g} (median), give nearly all weight to one candidate, and the others teach "
                f"nothing. Set temperature={_rounded(span / _SHARE)}."
            )


class RelevantFirst(Objective):
    """A reranker learns that the passage is relevant and its hard negatives are not: ``hard``.

    The student's ``scores`` are (B, 1 + K), the passage's first.

    Args:
        loss: Cross-entropy over the candidates of a query, or binary cross-entropy of each pair.
    """

    def __init__(self, *, loss: Spec[HardLabelCE] | Spec[RelevanceBCE] = spec(HardLabelCE)) -> None:
        super().__init__()
        self.loss: HardLabelCE | RelevanceBCE = loss.build()

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        """Return ``hard``."""
        scores_BC = student["scores"].embedding_BD
        labels_BC = torch.zeros_like(scores_BC)
        labels_BC[:, 0] = 1
        return {"hard": self.loss(scores_BC, labels_BC)}


def _rounded(value: float) -> str:
    """Two significant digits."""
    return f"{float(f'{value:.2g}'):g}"
