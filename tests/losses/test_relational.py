"""Losses on the cosines of a batch compared with loops over its pairs, closed forms and invariants."""

from collections.abc import Callable, Sequence

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses.relational import SimilarityMatrix, SpreadOut


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_cosine(a_D: Tensor, b_D: Tensor) -> Tensor:
    product = sum((x * y for x, y in zip(a_D, b_D, strict=True)), torch.zeros(()))
    squares = [sum((x * x for x in each), torch.zeros(())) for each in (a_D, b_D)]
    return product / (squares[0].sqrt() * squares[1].sqrt())


def slow_matrix(student: Tensor, teacher: Tensor) -> Tensor:
    gaps = [
        slow_cosine(student[i], student[j]) - slow_cosine(teacher[i], teacher[j])
        for i in range(len(student))
        for j in range(len(student))
        if i != j
    ]
    return sum((gap * gap for gap in gaps), torch.zeros(())) / len(gaps)


def slow_spread(student: Tensor, rows: Sequence[int]) -> Tensor:
    pairs = [(i, j) for i, row in enumerate(rows) for j, other in enumerate(rows) if row != other]
    cosines = [slow_cosine(student[i], student[j]) for i, j in pairs]
    first = sum(cosines, torch.zeros(())) / len(pairs)
    second = sum((cosine * cosine for cosine in cosines), torch.zeros(())) / len(pairs)
    excess = second - 1 / student.shape[1]
    return first * first + (excess if excess > 0 else 0 * excess)


def assert_equal(
    loss: Callable[[Tensor], Tensor], slow: Callable[[Tensor], Tensor], student: Tensor
) -> Tensor:
    """Compare values and gradients, and return the value."""
    ours, plain = student.clone().requires_grad_(), student.clone().requires_grad_()
    value, expected = loss(ours), slow(plain)
    value.backward()  # type: ignore[no-untyped-call]
    expected.backward()  # type: ignore[no-untyped-call]
    assert ours.grad is not None and plain.grad is not None
    assert abs(value.item() - expected.item()) < 1e-9
    assert (ours.grad - plain.grad).abs().max().item() < 1e-9 and plain.grad.abs().max() > 1e-4
    return value.detach()


@pytest.mark.parametrize("teacher_dim", [4, 7])
def test_the_matrix_is_the_equation(teacher_dim: int) -> None:
    student, teacher = draw(5, 4), 3 * draw(5, teacher_dim, seed=1)
    value = assert_equal(lambda s: SimilarityMatrix()(s, teacher), lambda s: slow_matrix(s, teacher), student)
    assert value > 0.01


@each_row("rows", [[0, 1, 2, 3, 4], [0, 1, 0, 2, 1]])
@each_row("crowded", [False, True])
def test_spread_out_is_the_equation(rows: list[int], crowded: bool) -> None:
    """Crowded vectors exceed the second moment 1/D, others do not."""
    student = draw(5, 3) + 5 * draw(3, seed=2) if crowded else torch.eye(5, 8, dtype=torch.float64)
    student = student + 0.1 * draw(*student.shape, seed=3)
    value = assert_equal(
        lambda s: SpreadOut()(s, torch.tensor(rows)), lambda s: slow_spread(s, rows), student
    )
    assert value > 0.5 if crowded else value < 0.05


def test_without_rows_every_two_places_are_a_pair() -> None:
    student = draw(4, 3)
    assert torch.equal(SpreadOut()(student), SpreadOut()(student, torch.arange(4)))


def test_closed_forms() -> None:
    matrix, spread, x = SimilarityMatrix(), SpreadOut(), draw(6, 4)
    assert matrix(x, x).item() == 0
    # All the same against orthogonal: every gap is 1.
    assert matrix(torch.ones(4, 3), torch.eye(4)).item() == pytest.approx(1, rel=1e-6)
    # An orthonormal basis has the cosines 0; equal vectors have mean and second moment 1.
    assert spread(torch.eye(5)).item() == 0
    assert spread(torch.ones(4, 8)).item() == pytest.approx(1 + 1 - 1 / 8, rel=1e-6)
    # Two opposite vectors: the mean is −1, the second moment 1.
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert spread(opposite).item() == pytest.approx(1 + 1 - 1 / 2, rel=1e-6)
    # A batch of one text alone has no pair.
    assert spread(torch.ones(4, 8), torch.zeros(4)).item() == 0


def test_vectors_that_are_drawn_evenly_from_the_sphere_have_no_loss() -> None:
    assert SpreadOut()(draw(2000, 16)).item() < 1e-4
    assert SpreadOut()(draw(2000, 16) + 1).item() > 0.1


def test_what_does_not_matter() -> None:
    student, teacher = draw(5, 4), draw(5, 6, seed=1)
    lengths = torch.tensor([[2.0], [0.1], [50.0], [1.0], [3.0]], dtype=torch.float64)
    rotation = torch.linalg.qr(draw(6, 6, seed=2))[0]
    order = torch.tensor([3, 0, 4, 1, 2])
    matrix, spread = SimilarityMatrix(), SpreadOut()
    expected = matrix(student, teacher).item()
    assert matrix(student * lengths, teacher @ rotation * 7).item() == pytest.approx(expected, rel=1e-12)
    assert matrix(student[order], teacher[order]).item() == pytest.approx(expected, rel=1e-12)
    assert matrix(student[order], teacher).item() != pytest.approx(expected, rel=1e-3)
    assert spread(teacher @ rotation * lengths).item() == pytest.approx(spread(teacher).item(), rel=1e-12)


def test_gradients() -> None:
    student, teacher = draw(4, 3).requires_grad_(), draw(4, 5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(SimilarityMatrix(), (student, teacher))
    assert torch.autograd.gradcheck(SpreadOut(), ((draw(4, 3) + 1).requires_grad_(),))


def test_edges_stay_finite_and_in_float32() -> None:
    student = torch.zeros(3, 4, requires_grad=True)
    value = SimilarityMatrix()(student, torch.ones(3, 4)) + SpreadOut()(student)
    value.backward()
    assert value.item() == pytest.approx(1) and student.grad is not None and student.grad.isfinite().all()
    narrow = draw(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = [SimilarityMatrix()(narrow.bfloat16(), narrow.half()), SpreadOut()(narrow.bfloat16())]
    assert [each.dtype for each in values] == [torch.float32] * 2
    assert values[1].item() == pytest.approx(SpreadOut()(narrow.bfloat16().double()).item(), abs=1e-6)


def test_what_cannot_be_compared_is_refused() -> None:
    matrix, spread = SimilarityMatrix(), SpreadOut()
    for student, teacher in (((4, 3), (5, 3)), ((3,), (3,)), ((1, 3), (1, 3))):
        with pytest.raises(BadInput):
            matrix(torch.ones(student), torch.ones(teacher))
    with pytest.raises(BadInput, match="batch >= 2"):
        spread(torch.ones(1, 3))
    with pytest.raises(BadInput, match="one row id per text"):
        spread(torch.ones(4, 3), torch.arange(3))
    with pytest.raises(BadInput, match=r"shape of the vectors = \(batch, dimension\)"):
        spread(torch.ones(4))
