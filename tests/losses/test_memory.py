"""The memory bank: queue behaviour, saved state, and its use in the loss."""

import pytest
import torch

from stillhouse.core.errors import BadInput
from stillhouse.losses.contrastive import InfoNCE
from stillhouse.losses.memory_bank import EMPTY, MemoryBank, among


def keys(*rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make keys: row r has the vector (r, r)."""
    ids = torch.tensor(rows)
    return ids[:, None].float().repeat(1, 2), ids


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def held(bank: MemoryBank) -> set[int]:
    return set(bank.rows_M.tolist()) - {EMPTY}


def test_the_oldest_rows_are_dropped_first() -> None:
    bank = MemoryBank(size=5, teacher_dim=2)
    assert held(bank) == set()
    seen: list[int] = []
    for batch in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)):
        bank.push(*keys(*batch))
        seen += batch
        assert held(bank) == set(seen[-5:])
        filled = bank.rows_M >= 0
        assert torch.equal(bank.vectors_ME[filled][:, 0], bank.rows_M[filled].float())


def test_row_membership_matches_isin() -> None:
    draws = torch.Generator().manual_seed(0)
    for many, few in ((1000, 1), (1000, 300), (1, 5)):
        rows, chosen = (torch.randint(-1, 400, (count,), generator=draws) for count in (many, few))
        assert torch.equal(among(rows, chosen), torch.isin(rows, chosen))


def test_a_row_is_stored_once() -> None:
    bank = MemoryBank(size=8, teacher_dim=2)
    bank.push(*keys(1, 2, 3))
    bank.push(*keys(2, 4, 4))
    assert sorted(bank.rows_M.tolist()) == [EMPTY, EMPTY, EMPTY, EMPTY, 1, 2, 3, 4]
    assert bank.rows_M[3] == 2


def test_a_batch_as_large_as_the_bank_fits_and_a_larger_one_is_refused() -> None:
    bank = MemoryBank(size=3, teacher_dim=2)
    bank.push(*keys(1, 2, 3))
    assert held(bank) == {1, 2, 3}
    with pytest.raises(BadInput, match=r"memory bank >= batch.*bank=3, batch=4"):
        bank.push(*keys(4, 5, 6, 7))
    assert held(bank) == {1, 2, 3}


def test_bad_sizes_and_shapes_are_refused() -> None:
    for size, dim in ((0, 2), (2, 0)):
        with pytest.raises(BadInput):
            MemoryBank(size=size, teacher_dim=dim)
    bank = MemoryBank(size=4, teacher_dim=2)
    for vectors, rows in ((torch.ones(2, 3), torch.arange(2)), (torch.ones(2, 2), torch.arange(3))):
        with pytest.raises(BadInput):
            bank.push(vectors, rows)


def test_the_state_is_saved_and_restored() -> None:
    bank, other = MemoryBank(size=5, teacher_dim=2), MemoryBank(size=5, teacher_dim=2)
    bank.push(*keys(1, 2, 3))
    other.load_state_dict(bank.state_dict())
    for each in (bank, other):
        each.push(*keys(4, 5, 6))
    for name, value in bank.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert set(bank.state_dict()) == {"vectors_ME", "rows_M", "next_slot"}
    assert not list(bank.parameters())


def test_keys_carry_no_gradient() -> None:
    bank = MemoryBank(size=2, teacher_dim=2)
    vectors, rows = keys(1, 2)
    bank.push(vectors.requires_grad_(), rows)
    assert not bank.vectors_ME.requires_grad


def test_a_batch_can_be_pushed_before_its_backward_pass() -> None:
    bank = MemoryBank(size=4, teacher_dim=3)
    bank.push(draw(2, 3, seed=2), torch.tensor([8, 9]))
    loss = InfoNCE(student_dim=3, teacher_dim=3)
    student, teacher, rows = draw(2, 3).requires_grad_(), draw(2, 3, seed=1), torch.tensor([1, 2])
    value = loss(student, teacher, rows, bank.vectors_ME, bank.rows_M)
    (expected,) = torch.autograd.grad(value, student, retain_graph=True)
    bank.push(teacher, rows)
    (gradient,) = torch.autograd.grad(value, student)
    assert torch.equal(gradient, expected)


def test_an_empty_bank_changes_nothing_and_a_full_one_adds_its_negatives() -> None:
    loss, bank = InfoNCE(student_dim=2, teacher_dim=2), MemoryBank(size=4, teacher_dim=2)
    student, (teacher, rows) = draw(2, 2), keys(1, 2)
    alone = loss(student, teacher, rows)
    assert torch.equal(loss(student, teacher, rows, bank.vectors_ME, bank.rows_M), alone)
    bank.push(*keys(1, 2))
    assert torch.equal(loss(student, teacher, rows, bank.vectors_ME, bank.rows_M), alone)
    bank.push(*keys(3))
    more = loss(student, teacher, rows, bank.vectors_ME, bank.rows_M)
    assert more > alone
    bigger = loss(student, teacher, torch.tensor([7, 8]), bank.vectors_ME, bank.rows_M)
    assert bigger > more
