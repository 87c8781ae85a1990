"""The reranker of labelled pairs: every candidate is scored as if it stood alone."""

from pathlib import Path

import pytest
import torch

from stillhouse.core.types import PairModel, Tokens
from stillhouse.students.pair_scorer import PairScorer
from stillhouse.students.reranker import PairReranker, beside
from stillhouse.teachers.weights import resolve_model

QUERIES, NEGATIVES = 3, 2


def tokens(*lengths: int, seed: int = 0) -> Tokens:
    ids = torch.randint(5, 60, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return Tokens(ids * mask, mask)


def row(of: Tokens, at: int) -> Tokens:
    """One text without its padding."""
    length = int(of.attention_mask_BT[at].sum())
    return Tokens(of.input_ids_BT[at : at + 1, :length], of.attention_mask_BT[at : at + 1, :length])


@pytest.mark.parametrize("longest", ["passage", "negatives"])
def test_each_candidate_is_scored_as_if_alone(longest: str, tiny_model: Path) -> None:
    model = PairReranker(resolve_model(str(tiny_model)), layers=(0, 1), dropout=0.0).eval()
    assert isinstance(model, PairModel)
    query = tokens(4, 7, 5)
    passage = tokens(*((9, 4, 6) if longest == "passage" else (3, 4, 5)), seed=1)
    negatives = tokens(5, 3, 8, 4, 6, 7, seed=2)
    with torch.no_grad():
        scores_BC = model(query, passage, negatives)
        alone = [
            [
                model(row(query, at), each).item()
                for each in (
                    row(passage, at),
                    *(row(negatives, at * NEGATIVES + k) for k in range(NEGATIVES)),
                )
            ]
            for at in range(QUERIES)
        ]
    assert scores_BC.shape == (QUERIES, 1 + NEGATIVES)
    torch.testing.assert_close(scores_BC, torch.tensor(alone), atol=2e-5, rtol=1e-4)


def test_passages_stand_in_front_of_their_own_negatives() -> None:
    joined = beside(
        Tokens(torch.tensor([[1, 2], [3, 0]]), torch.tensor([[1, 1], [1, 0]])),
        Tokens(torch.tensor([[10, 11, 12], [13, 14, 0], [15, 0, 0], [16, 17, 0]]), torch.ones(4, 3).long()),
    )
    assert joined.input_ids_BT.tolist() == [
        [1, 2, 0],
        [10, 11, 12],
        [13, 14, 0],
        [3, 0, 0],
        [15, 0, 0],
        [16, 17, 0],
    ]
    assert joined.attention_mask_BT[0].tolist() == [1, 1, 0]


def test_it_scores_pairs_of_texts(tiny_model: Path) -> None:
    model = PairReranker(resolve_model(str(tiny_model)), layers=(0,), dropout=0.0)
    scorer = PairScorer(model, tiny_model, 16)
    scores = scorer.score(["cat", "dog", "cat"], ["the river", "sun", "the moon and a house"])
    again = scorer.score(["cat"], ["the moon and a house"])
    assert scores.shape == (3, 1) and scores[2, 0] == pytest.approx(again[0, 0], abs=1e-5)
