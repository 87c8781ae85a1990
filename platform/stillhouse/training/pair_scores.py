"""A teacher's scores of every query and candidate, recorded once: examples whose origin is `Scored`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from stillhouse.cluster.ray_data import ModelPool
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.corpora.tables import open_texts
from stillhouse.teachers.cross_encoder import CrossEncoderScorer
from stillhouse.training.models import encoder_in
from stillhouse.training.recording import Predict, record
from stillhouse.values.data import Examples, Scored
from stillhouse.values.stage import Stage

if TYPE_CHECKING:
    from stillhouse.corpora.tables import Texts

SCORES = "scores"
AT_ONCE = 256
"""Queries per file: the most that a killed process loses."""


def build_scored(
    workspace: Workspace,
    examples: Examples,
    *,
    device: str = "cpu",
    pool: ModelPool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Score every pair with the teacher, as ``scores`` beside its rows; see `recording.record`.

    Raises:
        BadInput: The teacher cannot be loaded, or a score is not finite.
    """
    assert isinstance(examples.origin, Scored), "only scored examples are scored"
    opened = partial(_predictor, workspace, examples.origin)
    record(
        workspace,
        examples,
        SCORES,
        opened,
        rows_at_once=AT_ONCE,
        device=device,
        pool=pool,
        progress=progress,
    )


def _predictor(workspace: Workspace, origin: Scored, rows: Mapping[str, IntArray], device: str) -> Predict:
    query, document, queries_Q, candidates_QC = candidates_of(rows)
    asked, read = (open_texts(workspace, origin.rows.columns[column]) for column in (query, document))
    scorer = teacher_scorer(origin, workspace, device)
    return lambda at: _scores(scorer, asked, read, queries_Q[at], candidates_QC[at])


def candidates_of(rows: Mapping[str, IntArray]) -> tuple[str, str, IntArray, IntArray]:
    """Find the queries and the candidates of each among the columns of some rows.

    Returns:
        The column of the queries' table, a column of the candidates' table, the ids of the queries, (N,), and
        those of their candidates, (N, C); of labelled pairs, the passage and then its hard negatives.
    """
    if "claim" in rows:
        return "claim", "documents", rows["claim"], rows["documents"]
    candidates_NC = np.concatenate([rows["passage"][:, None], rows["negatives"]], axis=1)
    return "query", "passage", rows["query"], candidates_NC


def teacher_scorer(origin: Scored, workspace: Workspace, device: str = "cpu") -> Any:
    """Open the teacher as a scorer of pairs.

    Raises:
        BadInput: Its stage is not finished, or it cannot be loaded.
    """
    if isinstance(origin.teacher, Stage):
        return encoder_in(workspace.path(origin.teacher), device)
    return CrossEncoderScorer(origin.teacher, origin.max_length, device)


def _scores(
    scorer: Any, queries: "Texts", documents: "Texts", queries_Q: IntArray, candidates_QC: IntArray
) -> FloatArray:
    asked, width = queries[queries_Q], candidates_QC.shape[1]
    first = [query for query in asked for _ in range(width)]
    scores_N = np.asarray(scorer.score(first, documents[candidates_QC.reshape(-1)]), np.float32)
    scores_QC: FloatArray = scores_N.reshape(len(asked), width)
    if not np.isfinite(scores_QC).all():
        raise BadInput("A teacher's scores must be finite. It has diverged, or its precision is too low.")
    return scores_QC
