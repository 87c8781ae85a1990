"""CRD compared with plain Python loops, closed forms and invariants."""

import itertools
import math
from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses import tiled_sums
from stillhouse.losses.crd import CRD
from stillhouse.losses.memory_bank import EMPTY, MemoryBank


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def built(*, temperature: float = 0.2, items: int = 50, dim: int = 3, masked: bool = True) -> CRD:
    torch.manual_seed(1)
    loss = CRD(
        student_dim=4, teacher_dim=5, items=items, dim=dim, temperature=temperature, mask_duplicates=masked
    ).double()
    torch.nn.init.normal_(loss.student_head.bias)  # type: ignore[arg-type]
    torch.nn.init.normal_(loss.teacher_head.bias)  # type: ignore[arg-type]
    return loss


def embedded(head: torch.nn.Module, vector: Tensor) -> list[float]:
    weight, bias = (parameter.tolist() for parameter in head.parameters())
    values = [sum(w * v for w, v in zip(row, vector.tolist(), strict=True)) for row in weight]
    values = [value + b for value, b in zip(values, bias, strict=True)]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def slow(
    loss: CRD, student: Tensor, teacher: Tensor, bank: Tensor, ids: tuple[list[int], list[int]]
) -> float:
    """Compute the critic as written, one pair at a time."""
    rows, bank_rows = ids
    keys = [embedded(loss.teacher_head, vector) for vector in [*teacher, *bank]]
    total = 0.0
    for i in range(len(student)):
        anchor = embedded(loss.student_head, student[i])
        e = [
            math.exp(sum(a * k for a, k in zip(anchor, key, strict=True)) / loss.temperature.temperature)
            for key in keys
        ]
        negatives = []
        for j, row in enumerate([*rows, *bank_rows]):
            twin = row == rows[i] if j < len(rows) else row in rows
            if j != i and row != EMPTY and not (loss.mask_duplicates and twin):
                negatives.append(e[j])
        chance = len(negatives) / loss.items * loss.log_constant.exp().item()
        total -= math.log(e[i] / (e[i] + chance))
        total -= sum(math.log(1 - negative / (negative + chance)) for negative in negatives)
    return total / len(student)


@each_row("masked", [True, False])
@each_row("items", [3, 50, 10_000])
@each_row("tile", [1, 3, 2048])
def test_crd_is_the_equation(masked: bool, items: int, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiled_sums.TILE, "cpu", tile)
    loss = built(items=items, masked=masked)
    student, teacher, bank = draw(5, 4), draw(5, 5, seed=1), draw(4, 5, seed=2)
    rows, bank_rows = [7, 8, 7, 9, 1], [8, EMPTY, 30, 31]
    fast = loss(student, teacher, torch.tensor(rows), bank, torch.tensor(bank_rows))
    assert fast.item() == pytest.approx(slow(loss, student, teacher, bank, (rows, bank_rows)), rel=1e-12)


def test_the_constant_is_fixed_by_the_first_batch() -> None:
    torch.manual_seed(1)
    loss = CRD(student_dim=4, teacher_dim=5, items=50, dim=3, temperature=0.2, estimated=True).double()
    student, teacher, bank = draw(5, 4), draw(5, 5, seed=1), draw(4, 5, seed=2)
    ids = [0, 1, 2, 3, 4], [7, 8, EMPTY, 9]
    student_sides = [embedded(loss.student_head, each) for each in student]
    teacher_sides = [embedded(loss.teacher_head, each) for each in teacher]
    pairs = itertools.product(student_sides, teacher_sides)
    e = [math.exp(sum(a * k for a, k in zip(one, other, strict=True)) / 0.2) for one, other in pairs]
    loss(student, teacher)
    assert loss.log_constant.item() == pytest.approx(math.log(50 * sum(e) / len(e)), rel=1e-12)
    value = loss(student, teacher, torch.tensor(ids[0]), bank, torch.tensor(ids[1]))
    expected = slow(loss, student, teacher, bank, ids)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    before = loss.log_constant.clone()
    loss(draw(5, 4, seed=8), teacher)
    assert torch.equal(loss.log_constant, before) and "log_constant" in loss.state_dict()
    near_chance = CRD(student_dim=4, teacher_dim=5, items=50, temperature=1e6, estimated=True).double()
    # The critic cannot distinguish anything yet: h = 1 / (1 + N) for every pair, here with N = 4.
    assert near_chance(student, teacher).item() == pytest.approx(
        -math.log(1 / 5) - 4 * math.log(4 / 5), rel=1e-5
    )


def test_crd_without_ids_and_bank_uses_all_other_rows_as_negatives() -> None:
    loss = built()
    student, teacher = draw(4, 4), draw(4, 5, seed=1)
    expected = slow(loss, student, teacher, torch.empty(0, 5), ([0, 1, 2, 3], []))
    assert loss(student, teacher).item() == pytest.approx(expected, rel=1e-12)


def test_equal_vectors_have_a_closed_form() -> None:
    loss = CRD(student_dim=2, teacher_dim=2, items=40, dim=2, temperature=0.5, bias=False)
    for head in (loss.student_head, loss.teacher_head):
        torch.nn.init.eye_(head.weight)  # type: ignore[arg-type]
    e, chance = math.exp(2), 7 / 40
    expected = -math.log(e / (e + chance)) - 7 * math.log(chance / (e + chance))
    assert loss(torch.ones(8, 2), torch.ones(8, 2)).item() == pytest.approx(expected, rel=1e-6)


def test_batch_order_and_vector_norms_do_not_matter() -> None:
    loss = CRD(student_dim=4, teacher_dim=5, items=50, bias=False).double()
    student, teacher, order = draw(6, 4), draw(6, 5, seed=1), torch.tensor([3, 1, 5, 0, 2, 4])
    whole = loss(student, teacher)
    assert torch.allclose(whole, loss(student[order], teacher[order]), rtol=1e-12)
    assert torch.allclose(whole, loss(3 * student, 0.1 * teacher), rtol=1e-12)


def test_bank_rows_count_like_rows_of_the_batch() -> None:
    loss, bank = built(), MemoryBank(size=6, teacher_dim=5).double()
    student, teacher, rows = draw(3, 4), draw(3, 5, seed=1), torch.arange(3)
    alone = loss(student, teacher, rows)
    assert torch.equal(loss(student, teacher, rows, bank.vectors_ME, bank.rows_M), alone)
    bank.push(teacher, rows)
    assert torch.equal(loss(student, teacher, rows, bank.vectors_ME, bank.rows_M), alone)
    bank.push(draw(2, 5, seed=3), torch.tensor([8, 9]))
    assert not torch.equal(loss(student, teacher, rows, bank.vectors_ME, bank.rows_M), alone)


def test_a_batch_of_one_repeated_text_has_zero_loss() -> None:
    student = draw(2, 4).requires_grad_()
    value = built()(student, draw(2, 5, seed=1), torch.zeros(2, dtype=torch.long))
    value.backward()
    assert value.item() == 0
    assert student.grad is not None and student.grad.abs().max() == 0


def test_gradient_of_crd_reaches_both_heads() -> None:
    loss = built(temperature=0.5)
    student, teacher = draw(4, 4).requires_grad_(), draw(4, 5, seed=1).requires_grad_()
    rows = torch.tensor([1, 2, 1, 3])

    def value(student: Tensor, teacher: Tensor, *_: Tensor) -> Tensor:
        return torch.as_tensor(loss(student, teacher, rows, draw(2, 5, seed=9), torch.tensor([5, EMPTY])))

    assert torch.autograd.gradcheck(value, (student, teacher, *loss.parameters()))
    torch.autograd.backward(value(student, teacher))
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in loss.parameters())


def test_zero_vectors_and_a_small_temperature_stay_finite() -> None:
    loss = CRD(student_dim=3, teacher_dim=3, items=10**7, temperature=0.001, bias=False)
    for student in (torch.zeros(4, 3), torch.ones(4, 3)):
        student.requires_grad_()
        value = loss(student, torch.ones(4, 3))
        value.backward()
        assert student.grad is not None
        assert value.isfinite() and student.grad.isfinite().all()


def test_bfloat16_and_autocast_compute_in_float32() -> None:
    loss = CRD(student_dim=8, teacher_dim=8, items=100)
    student, teacher = draw(6, 8).bfloat16(), draw(6, 8, seed=1).bfloat16()
    exact = loss(student.float(), teacher.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(student, teacher)
    assert value.dtype == torch.float32 and torch.equal(value, exact)


@each_row("switch", [{"items": 0}, {"dim": 0}, {"temperature": 0.0}])
def test_crd_refuses_bad_values(switch: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(switch))):
        CRD(**{"student_dim": 3, "teacher_dim": 3, "items": 9, **switch})


def test_crd_refuses_mismatched_shapes() -> None:
    loss = CRD(student_dim=3, teacher_dim=3, items=9)
    for student, teacher in (((4, 3), (5, 3)), ((4, 3), (4, 2)), ((1, 3), (1, 3))):
        with pytest.raises(BadInput):
            loss(torch.ones(student), torch.ones(teacher))
    with pytest.raises(BadInput, match="one row id"):
        loss(torch.ones(4, 3), torch.ones(4, 3), torch.arange(3))
    with pytest.raises(BadInput, match="one row id"):
        loss(torch.ones(4, 3), torch.ones(4, 3), torch.arange(4), torch.ones(2, 3))
