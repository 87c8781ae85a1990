"""The ranking of every claim's candidates by a model: the evaluator of retrieval distillation.

Shakeri et al., Knowledge Distillation in Document Retrieval, §2.2; the figures are `evaluation.candidates`'.
"""

from typing import Any, ClassVar

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.candidates import candidate_figures, judge_candidates
from stillhouse.plan.data import Examples

DEPTHS = (1, 3, 5)
PAIRS_AT_ONCE = 1 << 16


class ClaimRanking:
    """Figures ``{name}_accuracy@1``, ``{name}_recall_micro@3``, ``{name}_dcg``, ….

    A model with ``score`` scores every pair; any other encoder is taken as two equal towers without a joiner,
    and ranks by the inner product of its vectors.

    Args:
        workspace: Where the claims are.
        examples: Columns ``claim`` and ``documents``; values ``gold`` and ``gold_count``, c_i.
        name: First part of the figures' names.
        split: ``dev`` or ``test``.
    """

    version: ClassVar[int] = 1

    def __init__(
        self, workspace: Workspace, examples: Examples, name: str = "fever", split: str = "dev"
    ) -> None:
        from stillhouse.corpora.tables import open_rows, open_texts, open_values

        rows, values = open_rows(workspace, examples), open_values(workspace, examples)
        texts = {column: open_texts(workspace, table) for column, table in examples.columns.items()}
        self.claims = texts["claim"][rows["claim"]]
        # Each document once; the candidates are rows of these.
        known, place = np.unique(rows["documents"], return_inverse=True)
        self.documents, self.places_QC = texts["documents"][known], place.reshape(rows["documents"].shape)
        self.gold_QC, self.gold_counts_Q = values["gold"], np.asarray(values["gold_count"], np.int64)
        self.name, self.split = name, split
        self.width = int(rows["documents"].shape[1])
        self.depths = tuple(k for k in DEPTHS if k <= self.width)

    def __call__(self, model: Any) -> dict[str, float]:
        """Score every pair and rank."""
        scores_QC = self.scored(model) if hasattr(model, "score") else self.multiplied(model)
        judged = judge_candidates(scores_QC, self.gold_QC, self.gold_counts_Q)
        return candidate_figures(judged, self.name, depths=self.depths)

    def scored(self, model: Any) -> FloatArray:
        """Scores of the candidates by a scorer, (Q, C); every text of a block is handed over once a pair."""
        width = self.width
        rows = max(1, PAIRS_AT_ONCE // width)
        parts = []
        for start in range(0, len(self.claims), rows):
            first = [claim for claim in self.claims[start : start + rows] for _ in range(width)]
            second = [self.documents[place] for place in self.places_QC[start : start + rows].ravel()]
            parts.append(np.asarray(model.score(first, second), np.float64).reshape(-1, width))
        return np.concatenate(parts)

    def multiplied(self, model: Any) -> FloatArray:
        """Inner products of the vectors of a claim and its candidates, (Q, C)."""
        claims_QD = np.asarray(model.encode(self.claims), np.float64)
        documents_ND = np.asarray(model.encode(self.documents), np.float64)
        products_QC: FloatArray = np.einsum("qd,qcd->qc", claims_QD, documents_ND[self.places_QC])
        return products_QC
