"""The evaluator of retrieval distillation: a model ranks the candidates of every claim.

Shakeri et al., Knowledge Distillation in Document Retrieval, §2.2. `evaluation.candidate_metrics` has the
figures.
"""

from typing import ClassVar

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.core.types import Encoder, FloatArray, Scorer, encode_as
from stillhouse.corpora.tables import open_rows, open_texts, open_values
from stillhouse.evaluation.candidate_metrics import candidate_figures, judge_candidates
from stillhouse.values.data import Examples

PAIRS_AT_ONCE = 1 << 16


class ClaimRanking:
    """Figures ``{name}_accuracy@1``, ``{name}_recall_micro@3``, ``{name}_dcg``, ….

    A `Scorer` scores every pair; any other encoder is treated as two equal towers without a joiner, and ranks
    by the inner product of its vectors.

    Args:
        workspace: Holds the claims.
        examples: Columns ``claim`` and ``documents``; values ``gold`` and ``gold_count`` (c_i).
        name: Prefix of the figures' names.
        split: ``dev`` or ``test``.
    """

    version: ClassVar[int] = 1
    unit: ClassVar[str] = "claims"

    def __init__(
        self, workspace: Workspace, examples: Examples, name: str = "fever", split: str = "dev"
    ) -> None:
        rows, values = open_rows(workspace, examples), open_values(workspace, examples)
        texts = {column: open_texts(workspace, table) for column, table in examples.columns.items()}
        self.claims = texts["claim"][rows["claim"]]
        # Each document is kept once; candidates are indices into these.
        known, place = np.unique(rows["documents"], return_inverse=True)
        self.documents, self.places_QC = texts["documents"][known], place.reshape(rows["documents"].shape)
        self.gold_QC, self.gold_counts_Q = values["gold"], np.asarray(values["gold_count"], np.int64)
        self.name, self.split = name, split
        self.width = int(rows["documents"].shape[1])

    def __call__(self, model: Encoder | Scorer) -> dict[str, float]:
        """Score every pair and rank the candidates."""
        scores_QC = self.pair_scores(model) if isinstance(model, Scorer) else self.inner_products(model)
        judged = judge_candidates(scores_QC, self.gold_QC, self.gold_counts_Q)
        return candidate_figures(judged, self.name)

    def counts(self) -> dict[str, int]:
        """Count the claims."""
        return {self.name: len(self.places_QC)}

    def pair_scores(self, model: Scorer) -> FloatArray:
        """Score the candidates with a scorer, (Q, C), block by block."""
        width = self.width
        rows = max(1, PAIRS_AT_ONCE // width)
        parts = []
        for start in range(0, len(self.claims), rows):
            first = [claim for claim in self.claims[start : start + rows] for _ in range(width)]
            second = [self.documents[place] for place in self.places_QC[start : start + rows].ravel()]
            parts.append(np.asarray(model.score(first, second), np.float64).reshape(-1, width))
        return np.concatenate(parts)

    def inner_products(self, model: Encoder) -> FloatArray:
        """Compute the inner products of every claim with its candidates, (Q, C)."""
        claims_QD = np.asarray(encode_as(model, QUERY, self.claims), np.float64)
        documents_ND = np.asarray(encode_as(model, DOCUMENT, self.documents), np.float64)
        products_QC: FloatArray = np.einsum("qd,qcd->qc", claims_QD, documents_ND[self.places_QC])
        return products_QC
