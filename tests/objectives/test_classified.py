"""The head's objective: its terms equal its losses, and its scores are probabilities."""

import pytest
import torch
from torch.nn import functional

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.heads import ClassificationHead, LabelsAndLogits
from stillhouse.objectives.classified import Classified
from stillhouse.objectives.matching import CosineApproximation, PairCosines

TEXTS = {"text": Encoding(torch.randn(4, 6)), "other": Encoding(torch.randn(4, 6))}
PAIRS = spec(ClassificationHead, classes=3, pair=True)
LABEL, LOGITS = torch.tensor([0, 2, 1, 2]), torch.randn(4, 3)


def batch(**values: torch.Tensor) -> Batch:
    return Batch({}, {"text": torch.arange(4)}, {}, values)


@pytest.mark.parametrize("pair", [False, True])
def test_labels_and_logits(pair: bool) -> None:
    texts = TEXTS if pair else {"text": TEXTS["text"]}
    head = spec(ClassificationHead, classes=3, pair=pair, hidden=5)
    objective = Classified(student_dim=6, head=head, loss=spec(LabelsAndLogits, alpha=0.25))
    terms = objective(texts, {}, batch(label=LABEL, logits=LOGITS))
    logits = objective.head(*(encoding.embedding_BD for encoding in texts.values()))
    torch.testing.assert_close(terms["labels"], 0.25 * functional.cross_entropy(logits, LABEL))
    torch.testing.assert_close(terms["logits"], 0.75 * functional.mse_loss(logits, LOGITS))
    torch.testing.assert_close(objective.score(texts), logits.softmax(-1).detach())
    torch.testing.assert_close(objective.logits(texts), logits)


def test_logits_are_required_unless_only_labels_are_used() -> None:
    both = Classified(student_dim=6, head=PAIRS, loss=spec(LabelsAndLogits, alpha=0.5))
    assert set(Classified(student_dim=6, head=PAIRS)(TEXTS, {}, batch(label=LABEL))) == {"labels"}
    with pytest.raises(BadInput, match="alpha = 1 without the teacher's logits"):
        both(TEXTS, {}, batch(label=LABEL))
    with pytest.raises(BadInput, match="alpha = 0 without labels"):
        Classified(student_dim=6, head=PAIRS)(TEXTS, {}, batch())


def test_the_cosine_to_the_teacher() -> None:
    ours, theirs = TEXTS["text"].embedding_BD, TEXTS["other"].embedding_BD
    terms = CosineApproximation()({"text": TEXTS["text"]}, {"text": TEXTS["other"]}, batch())
    expected = (0.5 * (1 - functional.cosine_similarity(ours, theirs))).mean()
    torch.testing.assert_close(terms["cosine"], expected)


def test_the_cosines_of_pairs() -> None:
    theirs = {"text": Encoding(torch.randn(4, 9)), "other": Encoding(torch.randn(4, 9))}
    ours_B, theirs_B = (
        functional.cosine_similarity(model["text"].embedding_BD, model["other"].embedding_BD)
        for model in (TEXTS, theirs)
    )
    terms = PairCosines()(TEXTS, theirs, batch())
    torch.testing.assert_close(terms["cosine"], (ours_B - theirs_B).square().mean())
