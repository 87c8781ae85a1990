"""A trained part's spec as JSON: nested specs round-trip, and so do the losses built from them."""

import json
from typing import Any

import pytest
import torch
from rows import each_row
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec, fingerprint, spec
from stillhouse.core.types import Batch, Encoding
from stillhouse.losses.contrastive import InfoNCE
from stillhouse.losses.heads import ClassificationHead, LabelsAndLogits
from stillhouse.losses.hsic import HSIC
from stillhouse.losses.memory_bank import MemoryBank
from stillhouse.losses.softlabel import HardLabelCE, SoftAndHard, SoftLabelMSE
from stillhouse.objectives.classified import Classified
from stillhouse.objectives.contrasts import ContrastiveDistillation
from stillhouse.objectives.information_bottleneck import InformationBottleneck
from stillhouse.objectives.ranking import JoinedCandidates
from stillhouse.students.transformer import TransformerStudent
from stillhouse.training.rebuild import class_of, describe, rebuild, spec_of
from stillhouse.values.data import Model

DIM, TEACHER, BATCH = 3, 4, 6
BOTTLENECK = spec(
    InformationBottleneck,
    nce=spec(InfoNCE, temperature=0.3, bias=True, learnable_scale=True),
    hsic=spec(HSIC, kernel="imq", gamma=0.2),
    beta=0.7,
    input_layer="penultimate",
)
PARTS = [
    BOTTLENECK,
    spec(ContrastiveDistillation, nce=spec(InfoNCE, similarity="cosine"), bank=spec(MemoryBank, size=8)),
    spec(ContrastiveDistillation, bank=None),
    spec(
        Classified,
        head=spec(ClassificationHead, classes=3, pair=True),
        loss=spec(LabelsAndLogits, alpha=0.25),
    ),
    spec(
        JoinedCandidates,
        loss=spec(SoftAndHard, soft=spec(SoftLabelMSE, compared="scores"), hard=spec(HardLabelCE)),
    ),
    spec(TransformerStudent, base=Model("0", name="base", path="somewhere"), layers=(0, 2)),
]


def stored(part: Spec[Any]) -> Any:
    """Return the description as read back from a manifest."""
    return json.loads(json.dumps(describe(part)))


def term_values(objective: nn.Module) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """Return the terms on a fixed batch and their gradients."""
    generator = torch.Generator().manual_seed(1)
    hidden = tuple(torch.randn(BATCH, 5, 7, generator=generator) for _ in range(3))
    mask = torch.ones(BATCH, 5, dtype=torch.long)
    student = {"text": Encoding(torch.randn(BATCH, DIM, generator=generator), hidden, mask)}
    teacher = {"text": Encoding(torch.randn(BATCH, TEACHER, generator=generator))}
    terms = objective(student, teacher, Batch({}, {"text": torch.arange(BATCH)}, {}))
    gradients = torch.autograd.grad(sum(terms.values()), list(objective.parameters()))
    return terms, list(gradients)


@each_row("part", PARTS)
def test_nested_specs_round_trip_through_json(part: Spec[Any]) -> None:
    again = spec_of(stored(part))
    assert again == part and fingerprint(again) == fingerprint(part)


def test_a_rebuilt_objective_gives_the_same_terms_and_gradients() -> None:
    torch.manual_seed(0)
    original = BOTTLENECK.build(student_dim=DIM, teacher_dim=TEACHER)
    rebuilt = rebuild(stored(BOTTLENECK), student_dim=DIM, teacher_dim=TEACHER)
    rebuilt.load_state_dict(original.state_dict())
    assert list(rebuilt.state_dict()) == [
        "nce.temperature.log_scale",
        "nce.projection.weight",
        "nce.projection.bias",
    ]
    assert list(term_values(original)[0]) == ["nce", "hsic"]
    torch.testing.assert_close(term_values(rebuilt), term_values(original), rtol=0, atol=0)


def test_a_missing_class_is_refused_at_any_depth() -> None:
    description = stored(BOTTLENECK)
    description["arguments"]["nce"]["spec"]["name"] = "Gone"
    with pytest.raises(BadInput, match="must exist"):
        rebuild(description, student_dim=DIM, teacher_dim=TEACHER)
    with pytest.raises(BadInput, match="must exist"):
        class_of({"module": "stillhouse.nowhere", "name": "Gone"})
