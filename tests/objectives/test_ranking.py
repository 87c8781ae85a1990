"""Objectives on candidates: their terms equal their losses on the joiner's scores."""

import pytest
import torch

from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.softlabel import HardLabelCE, SoftAndHard, SoftLabelCE, SoftLabelMSE
from stillhouse.objectives.ranking import JoinedCandidates, LabelledCandidates

CLAIMS, CANDIDATES, DIM = 3, 4, 5
GOLD = torch.eye(CANDIDATES)[:CLAIMS]
SCORES = torch.randn(CLAIMS, CANDIDATES)
ENCODINGS = {
    "claim": Encoding(torch.randn(CLAIMS, DIM)),
    "documents": Encoding(torch.randn(CLAIMS * CANDIDATES, DIM)),
}


def batch(**values: torch.Tensor) -> Batch:
    return Batch({}, {"claim": torch.arange(CLAIMS)}, {}, values)


@pytest.mark.parametrize("soft", [SoftLabelCE, SoftLabelMSE])
def test_soft_and_hard_on_the_scores_of_the_joiner(soft: type[SoftLabelCE] | type[SoftLabelMSE]) -> None:
    loss = spec(SoftAndHard, alpha=0.3, soft=spec(soft, temperature=2.0))
    objective = JoinedCandidates(student_dim=DIM, loss=loss)
    weight = objective.joiner.layer.weight
    torch.nn.init.normal_(weight)  # type: ignore[arg-type]
    terms = objective(ENCODINGS, {}, batch(gold=GOLD, scores=SCORES))
    joined = ENCODINGS["claim"].embedding_BD @ weight.T  # type: ignore[operator]
    documents = ENCODINGS["documents"].embedding_BD.view(CLAIMS, CANDIDATES, DIM)
    scores = torch.stack([documents[row] @ joined[row] for row in range(CLAIMS)])
    torch.testing.assert_close(objective.score(ENCODINGS), scores)
    torch.testing.assert_close(terms, loss.build()(scores, SCORES, GOLD))


def test_hard_labels_only() -> None:
    alone = JoinedCandidates(student_dim=DIM, loss=spec(SoftAndHard, alpha=0.0))
    terms = alone(ENCODINGS, {}, batch(gold=GOLD))
    torch.testing.assert_close(terms, {"hard": HardLabelCE()(alone.score(ENCODINGS), GOLD)})
    shared = LabelledCandidates(hard=spec(HardLabelCE, gold="mean"))
    terms = shared({"scores": Encoding(SCORES)}, {}, batch(gold=GOLD))
    torch.testing.assert_close(terms, {"hard": HardLabelCE(gold="mean")(SCORES, GOLD)})
