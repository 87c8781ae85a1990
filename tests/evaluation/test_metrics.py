import math
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from rows import each_row
from scipy import stats
from sklearn.metrics import average_precision_score, ndcg_score

from stillhouse.core.errors import BadInput
from stillhouse.evaluation.metrics import (
    average_precision,
    cosines,
    judge,
    ndcg,
    recall,
    reciprocal_rank,
    spearman,
)
from stillhouse.evaluation.search.exact import search

Ints = npt.NDArray[np.int64]


def rows(*ids: int) -> Ints:
    return np.array([ids], np.int64)


def qrels(*lines: tuple[int, int, int]) -> Ints:
    return np.array(lines, np.int64)


QUERY = np.array([0])


@each_row("levels", [3, 10, 1_000_000])
def test_spearman_equals_scipy_with_ties(levels: int) -> None:
    draw = np.random.default_rng(levels)
    for size in (2, 3, 50, 999):
        a, b = draw.integers(levels, size=size) / 7, draw.integers(levels, size=size) / 3
        if len(set(a)) > 1 and len(set(b)) > 1:
            assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert spearman([1, 2, 3], [30, 20, 10]) == pytest.approx(-1)


def test_spearman_of_a_constant_is_nan_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert not recwarn.list


def test_cosines() -> None:
    a = np.array([[3, 4], [1, 0], [0, 0]], np.float32)
    b = np.array([[6, 8], [0, 2], [1, 1]], np.float32)
    np.testing.assert_allclose(cosines(a, b), [1, 0, 0])
    with pytest.raises(BadInput, match="finite"):
        cosines(a, np.full((3, 2), np.nan, np.float32))


def test_a_table_by_hand() -> None:
    """Ranks 1 to 5 have gains 0, 3, 0, 1, 0; a passage with gain 2 was not retrieved."""
    judged = judge(rows(9, 4, 8, 5, 7), QUERY, qrels((0, 4, 3), (0, 5, 1), (0, 6, 2), (0, 8, 0), (1, 9, 1)))
    assert reciprocal_rank(judged, 10).tolist() == [0.5]
    assert reciprocal_rank(judged, 1).tolist() == [0]
    assert recall(judged, 2).tolist() == pytest.approx([1 / 3])
    assert recall(judged, 5).tolist() == pytest.approx([2 / 3])
    assert average_precision(judged, 5).tolist() == pytest.approx([(1 / 2 + 2 / 4) / 3])
    assert average_precision(judged, 2).tolist() == pytest.approx([(1 / 2) / 2])
    gained = 3 / math.log2(3) + 1 / math.log2(5)
    assert ndcg(judged, 5).tolist() == pytest.approx([gained / (3 + 2 / math.log2(3) + 1 / 2)])


def test_figures_are_means_over_the_queries() -> None:
    ids = np.array([[0, 1], [2, 3], [4, 5]])
    judged = judge(ids, np.array([2, 5, 7]), qrels((7, 9, 1), (2, 1, 1), (5, 2, 1), (5, 8, 1), (6, 1, 1)))
    assert reciprocal_rank(judged, 10).mean() == pytest.approx((0.5 + 1 + 0) / 3)
    assert recall(judged, 1).mean() == pytest.approx((0 + 0.5 + 0) / 3)


def test_ndcg_equals_sklearn_on_graded_gains() -> None:
    draw = np.random.default_rng(0)
    gains, scores = draw.integers(0, 4, (20, 30)), draw.standard_normal((20, 30))
    gains[:, 0] = 3
    lines = [(q, p, int(gains[q, p])) for q in range(20) for p in range(30)]
    judged = judge(np.argsort(-scores, axis=1), np.arange(20), qrels(*lines))
    for k in (1, 5, 30):
        expected = [ndcg_score(gains[q : q + 1], scores[q : q + 1], k=k) for q in range(20)]
        np.testing.assert_allclose(ndcg(judged, k), expected)
    expected = [average_precision_score(gains[q] > 0, scores[q]) for q in range(20)]
    np.testing.assert_allclose(average_precision(judged, 30), expected)


class Vectors:
    """A model whose texts are already encoded."""

    similarity_fn_name = "cosine"

    def __init__(self, queries: npt.NDArray[np.float32], passages: npt.NDArray[np.float32]) -> None:
        self.queries, self.passages = torch.from_numpy(queries), torch.from_numpy(passages)
        self.model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def similarity(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b.T

    def encode_query(self, texts: list[str], **_: object) -> torch.Tensor:
        return self.queries[[int(text) for text in texts]]

    def encode_document(self, texts: list[str], **_: object) -> torch.Tensor:
        return self.passages[[int(text) for text in texts]]


def test_same_figures_as_sentence_transformers_ties_included() -> None:
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    draw = np.random.default_rng(0)
    # Vectors along the axes: every product is exact and most are tied.
    queries = np.eye(6, dtype=np.float32)[draw.integers(6, size=40)]
    passages = np.eye(6, dtype=np.float32)[draw.integers(6, size=300)] * np.float32(0.5)
    judged_pairs = {(q, int(p)) for q in range(40) for p in draw.choice(300, draw.integers(1, 9))}
    relevant: dict[str, set[str]] = {}
    for query, passage in judged_pairs:
        relevant.setdefault(f"{query:03}", set()).add(f"{passage:03}")
    reference = InformationRetrievalEvaluator(
        queries={f"{q:03}": str(q) for q in range(40)},
        corpus={f"{p:03}": str(p) for p in range(300)},
        relevant_docs=relevant,
        mrr_at_k=[10],
        ndcg_at_k=[10],
        precision_recall_at_k=[1, 10, 100],
        map_at_k=[100],
        name="docs",
        write_csv=False,
    )(Vectors(queries, passages))
    _, ids = search(queries, passages, 100)
    judged = judge(ids, np.arange(40), qrels(*((q, p, 1) for q, p in judged_pairs)))
    for name, metric, depths in (
        ("mrr", reciprocal_rank, (10,)),
        ("ndcg", ndcg, (10,)),
        ("recall", recall, (1, 10, 100)),
        ("map", average_precision, (100,)),
    ):
        for depth in depths:
            theirs = reference[f"docs_cosine_{name}@{depth}"]
            assert metric(judged, depth).mean() == pytest.approx(theirs, abs=1e-12), name


def test_bad_judgements() -> None:
    with pytest.raises(BadInput, match="judged once"):
        judge(rows(1, 2), QUERY, qrels((0, 1, 1), (0, 1, 2)))
    with pytest.raises(BadInput, match="every query must have a relevant passage, but 1 of"):
        judge(rows(1, 2), QUERY, qrels((0, 1, 0), (3, 1, 1)))
