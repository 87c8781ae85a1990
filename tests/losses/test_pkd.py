"""PKD compared with loops, and its choice of layers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses.pkd import PKD, layer_pairs


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pairs(student: int, teacher: int, **switches: Any) -> tuple[tuple[int, int], ...]:
    return layer_pairs(student, teacher, **{"student_size": 8, "teacher_size": 8, **switches})


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("layers", [1, 3])
def test_pkd_is_the_equation(batch: int, layers: int) -> None:
    student = [draw(batch, 4, seed=layer) for layer in range(layers)]
    teacher = [draw(batch, 4, seed=10 + layer) for layer in range(layers)]
    total = 0.0
    for s_BH, t_BH in zip(student, teacher, strict=True):
        for s, t in zip(s_BH.tolist(), t_BH.tolist(), strict=True):
            s_length, t_length = math.hypot(*s), math.hypot(*t)
            total += sum((a / s_length - b / t_length) ** 2 for a, b in zip(s, t, strict=True))
    assert PKD()(student, teacher).item() == pytest.approx(total / batch, rel=1e-12)


def test_only_directions_matter() -> None:
    loss, state = PKD(), draw(3, 4)
    assert loss([state, state], [7 * state, 0.1 * state]).item() == pytest.approx(0, abs=1e-24)
    assert loss([state], [-state]).item() == pytest.approx(4, rel=1e-12)
    assert not list(loss.parameters())


def test_gradient_of_pkd() -> None:
    student = tuple(draw(3, 2, seed=i).requires_grad_() for i in range(2))
    teacher = [draw(3, 2, seed=5 + i) for i in range(2)]
    assert torch.autograd.gradcheck(lambda *states: PKD()(states, teacher), student)


def test_edges_stay_finite_and_in_float32() -> None:
    student = torch.zeros(2, 3, requires_grad=True)
    PKD()([student], [torch.ones(2, 3)]).backward()
    assert student.grad is not None and student.grad.isfinite().all()
    states = [draw(4, 8, seed=i).bfloat16() for i in range(2)]
    exact = PKD()([states[0].float()], [states[1].float()])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = PKD()(states[:1], states[1:])
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


@pytest.mark.parametrize(
    ("student", "teacher", "switches", "rule"),
    [
        (6, 12, {"match": "first"}, "match in"),
        (6, 4, {}, "layers of the student <= layers of the teacher"),
        (0, 4, {}, "layers of the student <= layers of the teacher"),
        (
            3,
            6,
            {"teacher_size": 16},
            "hidden size of the teacher`.*student_size=8, teacher_size=16",
        ),
        (1, 6, {}, "layers to match >= 1.*final=True"),
    ],
)
def test_mismatched_layers_are_refused(
    student: int, teacher: int, switches: dict[str, Any], rule: str
) -> None:
    with pytest.raises(BadInput, match=rule):
        pairs(student, teacher, **switches)


def test_mismatched_states_are_refused() -> None:
    state = torch.ones(2, 3)
    for student, teacher in (([], []), ([state], [state, state]), ([state], [torch.ones(3, 3)])):
        with pytest.raises(BadInput):
            PKD()(student, teacher)
    with pytest.raises(BadInput, match="hidden size"):
        PKD()([state], [torch.ones(2, 4)])
