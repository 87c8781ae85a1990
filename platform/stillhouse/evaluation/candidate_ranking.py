"""The evaluator of a reranker that is trained here: it ranks a pair's passage among its hard negatives."""

from typing import ClassVar

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import require
from stillhouse.core.types import Scorer
from stillhouse.corpora.tables import open_rows, open_texts, sampled_rows
from stillhouse.evaluation.candidate_metrics import candidate_figures, judge_candidates
from stillhouse.values.data import Examples, Sampled


class CandidateRanking:
    """Figures ``{name}_accuracy@1``, ``{name}_mrr@C``, ``{name}_dcg``, … on rows that are not trained on.

    Args:
        workspace: Holds the examples.
        trained_on: A sample of examples with the columns ``query``, ``passage`` and ``negatives``, (N, K);
            the rows that it leaves out are measured, C = 1 + K candidates each.
        name: Prefix of the figures' names.

    Raises:
        BadInput: The sample leaves no row out.
    """

    version: ClassVar[int] = 1
    unit: ClassVar[str] = "queries"

    def __init__(self, workspace: Workspace, trained_on: Examples, name: str = "reranker") -> None:
        origin = trained_on.origin
        assert isinstance(origin, Sampled), "the rows that are measured are those that a sample leaves out"
        rows = open_rows(workspace, origin.rows)
        kept = sampled_rows(workspace, origin)
        left = np.setdiff1d(np.arange(len(rows["query"])), kept)
        require(
            len(left) > 0,
            "pairs held out from the training of the reranker >= 1",
            pairs=len(rows["query"]),
            remedy="Give more pairs, or raise teacher_held_out.",
        )
        queries, passages = (open_texts(workspace, trained_on.columns[n]) for n in ("query", "passage"))
        candidates_QC = np.concatenate([rows["passage"][left, None], rows["negatives"][left]], axis=1)
        self.name, (self.count, self.width) = name, candidates_QC.shape
        self.queries = [query for query in queries[rows["query"][left]] for _ in range(self.width)]
        self.candidates = passages[candidates_QC.reshape(-1)]

    def __call__(self, model: Scorer) -> dict[str, float]:
        """Score every pair and rank the candidates."""
        scores_QC = np.asarray(model.score(self.queries, self.candidates), np.float64).reshape(-1, self.width)
        labels_QC = np.zeros(scores_QC.shape, np.int64)
        labels_QC[:, 0] = 1
        judged = judge_candidates(scores_QC, labels_QC, np.ones(self.count, np.int64))
        return candidate_figures(judged, self.name, depths=())

    def counts(self) -> dict[str, int]:
        """Count the queries."""
        return {self.name: self.count}
