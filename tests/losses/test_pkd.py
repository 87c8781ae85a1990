"""PKD compared with loops, and its choice of layers."""

import math
from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses.pkd import PKD, layer_pairs


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


pairs = layer_pairs


def pkd(layers: int = 1, student: int = 4, teacher: int = 4) -> PKD:
    torch.manual_seed(3)
    return PKD(layers=layers, student_size=student, teacher_size=teacher)


@each_row("batch", [1, 2, 5])
@each_row("layers", [1, 3])
def test_pkd_is_the_equation(batch: int, layers: int) -> None:
    student = [draw(batch, 4, seed=layer) for layer in range(layers)]
    teacher = [draw(batch, 4, seed=10 + layer) for layer in range(layers)]
    total = 0.0
    for s_BH, t_BH in zip(student, teacher, strict=True):
        for s, t in zip(s_BH.tolist(), t_BH.tolist(), strict=True):
            s_length, t_length = math.hypot(*s), math.hypot(*t)
            total += sum((a / s_length - b / t_length) ** 2 for a, b in zip(s, t, strict=True))
    assert pkd(layers)(student, teacher).item() == pytest.approx(total / batch, rel=1e-12)


def test_only_directions_matter() -> None:
    loss, state = pkd(), draw(3, 4)
    assert pkd(2)([state, state], [7 * state, 0.1 * state]).item() == pytest.approx(0, abs=1e-24)
    assert loss([state], [-state]).item() == pytest.approx(4, rel=1e-12)
    assert not list(loss.parameters())


def test_gradient_of_pkd() -> None:
    student = tuple(draw(3, 2, seed=i).requires_grad_() for i in range(2))
    teacher = [draw(3, 2, seed=5 + i) for i in range(2)]
    assert torch.autograd.gradcheck(lambda *states: pkd(2, 2, 2)(states, teacher), student)


def test_edges_stay_finite_and_in_float32() -> None:
    student = torch.zeros(2, 3, requires_grad=True)
    pkd(1, 3, 3)([student], [torch.ones(2, 3)]).backward()
    assert student.grad is not None and student.grad.isfinite().all()
    states = [draw(4, 8, seed=i).bfloat16() for i in range(2)]
    exact = pkd(1, 8, 8)([states[0].float()], [states[1].float()])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = pkd(1, 8, 8)(states[:1], states[1:])
    assert value.dtype == torch.float32 and torch.equal(value, exact)


def test_the_papers_six_layers_of_twelve() -> None:
    assert pairs(6, 12) == ((1, 2), (2, 4), (3, 6), (4, 8), (5, 10))
    assert pairs(6, 12, match="last") == ((1, 7), (2, 8), (3, 9), (4, 10), (5, 11))
    assert pairs(3, 12) == ((1, 4), (2, 8))


def test_other_depths_and_the_last_layer() -> None:
    assert pairs(6, 12, final=True)[-1] == pairs(6, 12, match="last", final=True)[-1] == (6, 12)
    assert pairs(4, 10) == ((1, 2), (2, 4), (3, 6))
    assert pairs(3, 3) == pairs(3, 3, match="last") == ((1, 1), (2, 2))
    assert pairs(1, 6, final=True) == ((1, 6),)


@each_row(
    ("student", "teacher", "switches", "rule"),
    [
        (6, 12, {"match": "first"}, "match in"),
        (6, 4, {}, "layers of the student <= layers of the teacher"),
        (0, 4, {}, "layers of the student <= layers of the teacher"),
        (1, 6, {}, "layers to match >= 1.*final=True"),
    ],
)
def test_mismatched_layers_are_refused(
    student: int, teacher: int, switches: dict[str, Any], rule: str
) -> None:
    with pytest.raises(BadInput, match=rule):
        pairs(student, teacher, **switches)


def test_mismatched_states_are_refused() -> None:
    state = torch.ones(2, 4)
    for student, teacher in (([], []), ([state], [state, state]), ([state], [torch.ones(3, 4)])):
        with pytest.raises(BadInput):
            pkd()(student, teacher)
    with pytest.raises(BadInput, match="dimension of the second side = 4"):
        pkd()([state], [torch.ones(2, 5)])
    with pytest.raises(BadInput, match="matched layers"):
        pkd(0)


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3)])
def test_states_of_another_size_are_projected(sizes: tuple[int, int]) -> None:
    """A matrix for every layer: a random orthogonal one at first, so that lengths and angles are kept."""
    loss = pkd(2, *sizes).double()
    first, second = [parameter.detach() for parameter in loss.parameters()]
    assert first.shape == sizes[::-1] and not torch.allclose(first, second)
    rows = first if sizes[0] > sizes[1] else first.T
    torch.testing.assert_close(rows @ rows.T, torch.eye(3, dtype=torch.float64), atol=1e-6, rtol=0)
    student = [draw(4, sizes[0], seed=layer).requires_grad_() for layer in range(2)]
    teacher = [draw(4, sizes[1], seed=10 + layer) for layer in range(2)]
    total = 0.0
    for matrix, s_BH, t_BG in zip((first, second), student, teacher, strict=True):
        for s, t in zip(s_BH.detach(), t_BG, strict=True):
            projected = [sum(a * b for a, b in zip(row, s.tolist(), strict=True)) for row in matrix.tolist()]
            s_length, t_length = math.hypot(*projected), math.hypot(*t.tolist())
            pairs = zip(projected, t.tolist(), strict=True)
            total += sum((a / s_length - b / t_length) ** 2 for a, b in pairs)
    value = loss(student, teacher)
    assert value.item() == pytest.approx(total / 4, rel=1e-9)
    value.backward()
    assert all(parameter.grad is not None and parameter.grad.norm() > 0 for parameter in loss.parameters())
