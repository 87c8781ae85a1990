"""Figures over candidates, compared with hand tables, loops, scikit-learn and sentence-transformers."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rows import each_row
from sklearn.metrics import ndcg_score

from stillhouse.core.errors import BadInput
from stillhouse.evaluation.candidate_metrics import candidate_figures, judge_candidates

SCORES = np.array(
    [
        [0.9, 0.1, 0.5, 0.3],  # order 0 2 3 1
        [0.2, 0.8, 0.2, 0.2],  # 1, then a tie of three
        [0.1, 0.2, 0.3, 0.4],  # 3 2 1 0
    ]
)
LABELS = np.array(
    [
        [1, 0, 0, 1],  # ranks 1 and 3
        [1, 0, 0, 0],  # tied for rank 2: counted at rank 4
        [0, 0, 0, 0],  # its two relevant documents are not among the candidates
    ]
)
GOLD = np.array([2, 1, 2])


def test_a_table_by_hand_with_ties_and_missing_gold() -> None:
    figures = candidate_figures(judge_candidates(SCORES, LABELS, GOLD), "fever", depths=(1, 3, 4))
    assert list(figures) == [
        "fever_accuracy@1",
        "fever_recall_micro@1",
        "fever_recall_macro@1",
        "fever_recall_micro@3",
        "fever_recall_macro@3",
        "fever_recall_micro@4",
        "fever_recall_macro@4",
        "fever_dcg",
        "fever_mrr@4",
        "fever_ndcg@4",
    ]
    gained = (1 + 1 / 2, 1 / math.log2(5), 0.0)
    best = (1 + 1 / math.log2(3), 1.0, 1 + 1 / math.log2(3))
    assert list(figures.values()) == pytest.approx(
        [
            1 / 3,
            1 / 5,
            (1 / 2) / 3,
            2 / 5,
            1 / 3,
            3 / 5,
            2 / 3,
            sum(gained) / 3,
            (1 + 1 / 4) / 3,
            sum(g / b for g, b in zip(gained, best, strict=True)) / 3,
        ]
    )


def test_tied_scores_count_against_the_model_in_any_order() -> None:
    for place in range(4):
        labels = np.eye(4)[[place]]
        judged = judge_candidates(np.zeros((1, 4), np.float32), labels, np.array([1]))
        assert judged.gains_QK.tolist() == [[0, 0, 0, 1]]
    judged = judge_candidates(np.array([[0.0, -0.0, 1, 1]]), np.array([[1, 0, 1, 0]]), np.array([2]))
    assert judged.gains_QK.tolist() == [[0, 1, 0, 1]]


def test_micro_and_macro_match_their_definitions() -> None:
    draw = np.random.default_rng(0)
    scores, labels = draw.standard_normal((30, 10)), draw.random((30, 10)) < 0.2
    gold = labels.sum(axis=1) + draw.integers(0, 2, 30)
    gold[gold == 0] = 1
    figures = candidate_figures(judge_candidates(scores, labels, gold), "x", depths=(3, 5))
    for k in (3, 5):
        hits = [sum(bool(labels[i, j]) for j in np.argsort(-scores[i])[:k]) for i in range(30)]
        assert figures[f"x_recall_micro@{k}"] == pytest.approx(sum(hits) / sum(gold))
        shares = [hit / count for hit, count in zip(hits, gold, strict=True)]
        assert figures[f"x_recall_macro@{k}"] == pytest.approx(sum(shares) / 30)


def test_equals_scikit_learn_and_sentence_transformers_with_all_gold() -> None:
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    draw = np.random.default_rng(1)
    scores = draw.standard_normal((20, 10)).astype(np.float32)
    labels = (draw.random((20, 10)) < 0.2).astype(int)
    labels[:, 4] = 1
    figures = candidate_figures(judge_candidates(scores, labels, labels.sum(axis=1)), "x")
    assert figures["x_ndcg@10"] == pytest.approx(ndcg_score(labels, scores, k=10))

    class Scores:
        """Stands in for a cross-encoder: a pair's second text is its score."""

        model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

        def predict(self, pairs: list[list[str]], **_: object) -> Any:
            return np.array([float(pair[1]) for pair in pairs])

    samples = [
        {
            "query": str(q),
            "positive": [repr(float(s)) for s, y in zip(scores[q], labels[q], strict=True) if y],
            "negative": [repr(float(s)) for s, y in zip(scores[q], labels[q], strict=True) if not y],
        }
        for q in range(20)
    ]
    stand_in: Any = Scores()
    reference = CrossEncoderRerankingEvaluator(samples, at_k=10, write_csv=False)(stand_in)
    assert figures["x_mrr@10"] == pytest.approx(reference["mrr@10"])
    assert figures["x_ndcg@10"] == pytest.approx(reference["ndcg@10"])


@each_row(
    ("change", "message"),
    [
        ({"labels": LABELS[:2]}, "gold counts"),
        ({"gold": GOLD[:2]}, "gold counts"),
        ({"gold": np.array([2, 0, 2])}, "the first is 1"),
        ({"gold": np.array([1, 1, 2])}, "the first is 0"),
        ({"scores": np.where(SCORES == 0.8, np.nan, SCORES)}, "finite"),
    ],
)
def test_impossible_inputs_are_refused(change: dict[str, Any], message: str) -> None:
    given = {"scores": SCORES, "labels": LABELS, "gold": GOLD, **change}
    with pytest.raises(BadInput, match=message):
        judge_candidates(given["scores"], given["labels"], given["gold"])


def test_depths_beyond_the_candidates_are_left_out() -> None:
    figures = candidate_figures(judge_candidates(SCORES, LABELS, GOLD), "x", depths=(4, 5))
    assert "x_recall_macro@4" in figures and "x_recall_macro@5" not in figures
