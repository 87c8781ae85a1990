import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.students.pooling import POOLINGS, pool


@pytest.fixture
def states_BTH() -> Tensor:
    return torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def mask_BT() -> Tensor:
    return torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])


@each_row("pooling", POOLINGS)
def test_pooling_a_batch_equals_pooling_each_text(pooling: str, states_BTH: Tensor, mask_BT: Tensor) -> None:
    pooled_BH = pool(pooling, states_BTH, mask_BT)
    for row, mask_T in enumerate(mask_BT):
        real = states_BTH[row, : int(mask_T.sum())].double()
        poolings = {"mean": real.mean(0), "cls": real[0], "max": real.max(0).values, "last": real[-1]}
        expected = poolings[pooling]
        torch.testing.assert_close(pooled_BH[row].double(), expected, rtol=1e-6, atol=1e-6)


@each_row("pooling", POOLINGS)
@each_row("rubbish", [1e30, float("inf"), float("nan")])
def test_values_in_the_padding_change_nothing(
    pooling: str, rubbish: float, states_BTH: Tensor, mask_BT: Tensor
) -> None:
    spoilt_BTH = torch.where(mask_BT.bool().unsqueeze(-1), states_BTH, rubbish)
    assert torch.equal(pool(pooling, spoilt_BTH, mask_BT), pool(pooling, states_BTH, mask_BT))


@each_row("pooling", POOLINGS)
def test_gradients_reach_real_tokens_only(pooling: str, states_BTH: Tensor, mask_BT: Tensor) -> None:
    states_BTH.requires_grad_(True)
    (grad_BTH,) = torch.autograd.grad(pool(pooling, states_BTH, mask_BT).square().sum(), states_BTH)
    assert grad_BTH[mask_BT == 0].eq(0).all()
    assert grad_BTH.ne(0).any(dim=2).any(dim=1).all()


@each_row("pooling", POOLINGS)
def test_a_text_without_tokens_gives_finite_values(pooling: str, states_BTH: Tensor) -> None:
    pooled_BH = pool(pooling, states_BTH, torch.zeros(3, 5, dtype=torch.int64))
    assert pooled_BH.isfinite().all()


def test_the_last_token_is_found_on_either_side_of_the_padding(states_BTH: Tensor, mask_BT: Tensor) -> None:
    turned = [(states_BTH[row : row + 1].roll(-int(mask_T.sum()), 1)) for row, mask_T in enumerate(mask_BT)]
    left = pool("last", torch.cat(turned), mask_BT.flip(1))
    assert torch.equal(left, pool("last", states_BTH, mask_BT))


def test_a_bfloat16_mean_is_summed_in_float32() -> None:
    states_BTH = torch.full((1, 4096, 1), 1.0, dtype=torch.bfloat16)
    pooled_BH = pool("mean", states_BTH, torch.ones(1, 4096, dtype=torch.int64))
    assert pooled_BH.dtype == torch.float32
    assert pooled_BH.item() == 1.0  # summed in bfloat16 it would stop growing at 256


def test_float64_stays_float64(states_BTH: Tensor, mask_BT: Tensor) -> None:
    assert all(pool(name, states_BTH.double(), mask_BT).dtype == torch.float64 for name in POOLINGS)
