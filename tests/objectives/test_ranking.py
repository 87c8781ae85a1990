"""Objectives on candidates: their terms are the losses they are made of, on the joiner's scores."""

import pytest
import torch

from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.softlabel import HardLabelCE, SoftAndHard
from stillhouse.objectives.ranking import JoinedCandidates, LabelledCandidates

CLAIMS, CANDIDATES, DIM = 3, 4, 5
GOLD = torch.eye(CANDIDATES)[:CLAIMS]
SCORES = torch.randn(CLAIMS, CANDIDATES)
SAID = {
    "claim": Encoding(torch.randn(CLAIMS, DIM)),
    "documents": Encoding(torch.randn(CLAIMS * CANDIDATES, DIM)),
}


def batch(**values: torch.Tensor) -> Batch:
    return Batch({}, {"claim": torch.arange(CLAIMS)}, {}, values)


@pytest.mark.parametrize("soft", ["ce", "mse"])
def test_soft_and_hard_on_the_scores_of_the_joiner(soft: str) -> None:
    objective = JoinedCandidates(student_dim=DIM, soft_loss=soft, alpha=0.3, temperature=2.0)
    weight = objective.joiner.layer.weight
    torch.nn.init.normal_(weight)  # type: ignore[arg-type]
    terms = objective(SAID, {}, batch(gold=GOLD, scores=SCORES))
    joined = SAID["claim"].embedding_BD @ weight.T  # type: ignore[operator]
    documents = SAID["documents"].embedding_BD.view(CLAIMS, CANDIDATES, DIM)
    scores = torch.stack([documents[row] @ joined[row] for row in range(CLAIMS)])
    torch.testing.assert_close(objective.score(SAID), scores)
    loss = SoftAndHard(alpha=0.3, soft=soft, temperature=2.0)
    torch.testing.assert_close(terms, loss.terms(scores, SCORES, GOLD))


def test_labels_alone() -> None:
    alone = JoinedCandidates(student_dim=DIM, alpha=0.0)
    terms = alone(SAID, {}, batch(gold=GOLD))
    torch.testing.assert_close(terms, {"hard": HardLabelCE()(alone.score(SAID), GOLD)})
    said = LabelledCandidates(gold="mean")({"scores": Encoding(SCORES)}, {}, batch(gold=GOLD))
    torch.testing.assert_close(said, {"hard": HardLabelCE(gold="mean")(SCORES, GOLD)})
