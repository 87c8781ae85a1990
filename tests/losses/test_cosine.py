"""Cosine losses compared with loops, closed forms and invariants."""

import math

import pytest
import torch
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses.cosine import CosineDistance, PairCosineMSE


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_cosine(a_D: Tensor, b_D: Tensor) -> float:
    product = sum(x * y for x, y in zip(a_D.tolist(), b_D.tolist(), strict=True))
    lengths = [math.sqrt(sum(x * x for x in vector.tolist())) for vector in (a_D, b_D)]
    return float(product / (lengths[0] * lengths[1]))


def test_equation_one() -> None:
    student, teacher = draw(5, 3), draw(5, 3, seed=1)
    expected = sum(0.5 * (1 - slow_cosine(s, t)) for s, t in zip(student, teacher, strict=True)) / 5
    assert CosineDistance()(student, teacher).item() == pytest.approx(expected, rel=1e-12)


def test_pair_cosines_match_the_teacher() -> None:
    s, r, t, u = draw(4, 3), draw(4, 3, seed=1), draw(4, 5, seed=2), draw(4, 5, seed=3)
    gaps = [slow_cosine(s[i], r[i]) - slow_cosine(t[i], u[i]) for i in range(4)]
    expected = sum(gap**2 for gap in gaps) / 4
    assert PairCosineMSE()(s, r, t, u).item() == pytest.approx(expected, rel=1e-12)
    assert PairCosineMSE()(t, u, t, u).item() == pytest.approx(0, abs=1e-15)


def test_closed_forms() -> None:
    loss, x = CosineDistance(), draw(3, 4)
    assert loss(x, x).item() == pytest.approx(0, abs=1e-12)
    assert loss(x, -x).item() == pytest.approx(1, rel=1e-12)
    assert loss(torch.eye(2)[:1], torch.eye(2)[1:]).item() == pytest.approx(0.5)


def test_vector_norms_do_not_matter() -> None:
    loss, student, teacher = CosineDistance(), draw(3, 4), draw(3, 4, seed=1)
    scaled = loss(student * torch.tensor([[2.0], [0.1], [50.0]]), teacher * 7)
    assert scaled.item() == pytest.approx(loss(student, teacher).item(), rel=1e-12)
    pairs = PairCosineMSE()
    one = pairs(student, teacher, teacher, draw(3, 4, seed=2))
    assert pairs(student * 3, teacher, teacher * 9, draw(3, 4, seed=2)).item() == pytest.approx(one.item())


def test_gradients() -> None:
    s, r, t, u = (draw(3, 4, seed=seed).requires_grad_() for seed in range(4))
    assert torch.autograd.gradcheck(CosineDistance(), (s, t))
    assert torch.autograd.gradcheck(PairCosineMSE(), (s, r, t, u))


def test_zero_vectors_stay_finite() -> None:
    student = torch.zeros(2, 3, requires_grad=True)
    value = CosineDistance()(student, torch.ones(2, 3))
    assert value.item() == 0.5
    (value + PairCosineMSE()(student, student, torch.ones(2, 3), torch.ones(2, 3))).backward()
    assert student.grad is not None and student.grad.isfinite().all()


def test_half_precision_inputs_are_upcast() -> None:
    student, teacher = draw(8, 16).bfloat16(), draw(8, 16, seed=1).half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = CosineDistance()(student, teacher)
        pairs = PairCosineMSE()(student, student.flip(0), teacher, teacher.flip(0))
    assert narrow.dtype == pairs.dtype == torch.float32
    assert narrow.item() == pytest.approx(
        CosineDistance()(student.double(), teacher.double()).item(), abs=1e-6
    )


def test_mismatched_shapes_are_refused() -> None:
    for student, teacher in (((4, 3), (5, 3)), ((4, 3), (4, 2)), ((3,), (3,))):
        with pytest.raises(BadInput):
            CosineDistance()(torch.ones(student), torch.ones(teacher))
    a, b = torch.ones(4, 3), torch.ones(5, 3)
    for given in ((a, b, a, a), (a, a, a, b), (a, a, b, b), (a, torch.ones(4, 2), a, a)):
        with pytest.raises(BadInput):
            PairCosineMSE()(*given)
