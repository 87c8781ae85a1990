"""MSE and the cosine distance compared with loops and closed forms."""

from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor, nn

from stillhouse.core.errors import BadInput
from stillhouse.losses.regression import MSE


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@each_row("dimensions", ["mean", "sum"])
@each_row("student_dim", [3, 5])
def test_mse_is_the_equation(dimensions: str, student_dim: int) -> None:
    torch.manual_seed(0)
    loss = MSE(student_dim=student_dim, teacher_dim=5, bias=student_dim != 5, dimensions=dimensions).double()
    student, teacher = draw(4, student_dim), draw(4, 5, seed=1)
    mapped = student
    assert isinstance(loss.projection, nn.Linear) == (student_dim == 3)
    if isinstance(loss.projection, nn.Linear):
        nn.init.normal_(loss.projection.bias)
        mapped = student @ loss.projection.weight.T + loss.projection.bias
    total = sum((mapped[i, d] - teacher[i, d]).item() ** 2 for i in range(4) for d in range(5))
    assert loss(student, teacher).item() == pytest.approx(
        total / (20 if dimensions == "mean" else 4), rel=1e-12
    )


def test_mse_projects_only_if_required_or_requested() -> None:
    assert not list(MSE(student_dim=3, teacher_dim=3).parameters())
    assert [p.shape for p in MSE(student_dim=3, teacher_dim=5).parameters()] == [(5, 3)]
    projected = MSE(student_dim=3, teacher_dim=3, projection=True).double()
    student = draw(4, 3)
    assert projected(student, student).item() == 0


def test_gradients_of_regression() -> None:
    torch.manual_seed(0)
    student, teacher = draw(3, 2).requires_grad_(), draw(3, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(MSE(student_dim=2, teacher_dim=4).double(), (student, teacher))


def test_edges_stay_finite_and_in_float32() -> None:
    loss = MSE(student_dim=3, teacher_dim=3)
    student = torch.zeros(2, 3, requires_grad=True)
    loss(student, torch.zeros(2, 3)).backward()
    assert student.grad is not None and student.grad.isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(torch.ones(2, 3).bfloat16(), torch.zeros(2, 3).half())
    assert value.dtype == torch.float32


@each_row(
    "switches",
    [{"teacher_dim": 4, "projection": False}, {"dimensions": "max"}, {"projection": False, "bias": True}],
)
def test_mse_refuses(switches: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        MSE(**{"student_dim": 3, "teacher_dim": 3, **switches})


def test_regression_refuses_mismatched_shapes() -> None:
    loss = MSE(student_dim=3, teacher_dim=3)
    for student, teacher in (((4, 3), (5, 3)), ((4, 3), (4, 2)), ((4, 3), (4, 1)), ((3,), (3,))):
        with pytest.raises(BadInput):
            loss(torch.ones(student), torch.ones(teacher))


@pytest.mark.parametrize("dimensions", ["mean", "sum"])
def test_normalised_both_sides_are(dimensions: str) -> None:
    loss = MSE(student_dim=5, teacher_dim=5, dimensions=dimensions, normalize=True)
    student, teacher = draw(4, 5), 7 * draw(4, 5, seed=1)
    ours, theirs = student / student.norm(dim=1, keepdim=True), teacher / teacher.norm(dim=1, keepdim=True)
    squares = (ours - theirs).square().sum().item()
    assert loss(student, teacher).item() == pytest.approx(squares / (20 if dimensions == "mean" else 4))
    assert loss(3 * teacher, teacher).item() == pytest.approx(0, abs=1e-15)


def test_a_unit_student_reaches_an_unnormalised_teacher_only_if_both_sides_are_normalised() -> None:
    teacher = 5 * draw(6, 4)
    unit = teacher / teacher.norm(dim=1, keepdim=True)
    plain, normalised = (MSE(student_dim=4, teacher_dim=4, normalize=each) for each in (False, True))
    assert plain(teacher, teacher).item() == 0
    assert normalised(unit, teacher).item() == pytest.approx(0, abs=1e-15)
    assert plain(unit, teacher).item() > 1
