"""The stage-4 losses compared with loops, closed forms and invariants."""

import math

import pytest
import torch
from rows import each_row
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.losses.multilingual import MultilingualContrast, MultilingualCrossEntropy

LOSSES = [
    MultilingualContrast(),
    MultilingualContrast(labels="same"),
    MultilingualCrossEntropy(),
]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cosine(a: Tensor, b: Tensor) -> float:
    dot = sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
    return float(dot / math.sqrt(sum(x * x for x in a.tolist()) * sum(y * y for y in b.tolist())))


def triple(batch: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    return draw(batch, 3), draw(batch, 3, seed=1), draw(batch, 4, seed=2)


@pytest.mark.parametrize("labels", ["teacher", "same"])
def test_the_contrast_is_the_equation(labels: str) -> None:
    source, target, teacher = triple()
    teacher[3] = teacher[1]
    total = 0.0
    for i in range(5):
        for j in range(5):
            same = float(i == j or {i, j} == {1, 3})
            label = cosine(teacher[i], teacher[j]) if labels == "teacher" else same
            total += (label - cosine(source[i], target[j])) ** 2
    found = MultilingualContrast(labels=labels)(source, target, teacher)
    assert found.item() == pytest.approx(total / 25, rel=1e-12)


def test_cross_entropy_is_the_equation() -> None:
    source, target, teacher = triple()
    total = 0.0
    for i in range(5):
        scale = [math.exp(cosine(source[i], target[k]) / 0.05) for k in range(5)]
        for j in range(5):
            total -= cosine(teacher[i], teacher[j]) * math.log(scale[j] / sum(scale))
    assert MultilingualCrossEntropy()(source, target, teacher).item() == pytest.approx(total / 5, rel=1e-12)


def test_a_student_equal_to_the_teacher_has_zero_loss_and_closed_forms_hold() -> None:
    teacher = draw(4, 3)
    assert MultilingualContrast()(teacher * 2, teacher * 5, teacher).item() == pytest.approx(0, abs=1e-24)
    axes = torch.eye(4, dtype=torch.float64)
    assert MultilingualContrast(labels="same")(axes, axes, teacher).item() == 0
    # Every target matches the wrong source: of 16 pairs, 4 positives are missed and 4 negatives match.
    assert MultilingualContrast(labels="same")(axes, axes.roll(1, 0), teacher).item() == pytest.approx(0.5)
    expected = math.log(1 + 3 * math.exp(-20))
    assert MultilingualCrossEntropy()(axes, axes, axes).item() == pytest.approx(expected, rel=1e-9)


@each_row("loss", LOSSES)
def test_vector_norms_and_pair_order_do_not_matter(loss: nn.Module) -> None:
    source, target, teacher = triple()
    value = loss(source, target, teacher)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(loss(source[order], target[order], teacher[order]), value)
    torch.testing.assert_close(loss(source * 3, target * 0.1, teacher * 2), value)
    assert not torch.isclose(loss(source, target[order], teacher), value)


@each_row("loss", LOSSES)
def test_gradients(loss: nn.Module) -> None:
    source, target, teacher = triple(3)
    source.requires_grad_(), target.requires_grad_()
    assert torch.autograd.gradcheck(lambda s, t: loss(s, t, teacher), (source, target))


@each_row("loss", LOSSES)
def test_edges_stay_finite_and_in_float32(loss: nn.Module) -> None:
    source = torch.zeros(2, 3, requires_grad=True)
    same = torch.ones(2, 3, requires_grad=True)
    for first in (source, same):
        loss(first, torch.ones(2, 3), torch.zeros(2, 4)).backward()
        assert first.grad is not None and first.grad.isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = [part.bfloat16() for part in triple()]
        value = loss(*narrow)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(*(part.float() for part in narrow)))


@each_row("loss", LOSSES)
def test_mismatched_shapes_are_refused(loss: nn.Module) -> None:
    for shapes in (
        ((4, 3), (5, 3), (4, 2)),
        ((4, 3), (4, 2), (4, 2)),
        ((4, 3), (4, 3), (5, 2)),
        ((1, 3),) * 3,
    ):
        with pytest.raises(BadInput):
            loss(*(torch.ones(shape) for shape in shapes))


def test_invalid_options_are_refused() -> None:
    with pytest.raises(BadInput, match="labels in"):
        MultilingualContrast(labels="bool")
    with pytest.raises(BadInput, match="temperature > 0"):
        MultilingualCrossEntropy(temperature=0)
