"""Tiled sums over a bank: value and gradient compared with those of the whole matrix."""

import math

import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.losses import tiled_sums
from stillhouse.losses.numerics import unit
from stillhouse.losses.tiled_sums import streamed_logsumexp, streamed_sum

KEYS, DIM = 23, 5


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiled_sums.TILE, "cpu", 4)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@each_row("scale", [1e-3, 1.0, 1e3])
def test_tiles_give_the_value_and_the_gradient_of_the_whole_matrix(scale: float) -> None:
    anchors = (scale * draw(7, DIM)).requires_grad_()
    keys, hidden = draw(KEYS, DIM, seed=1), draw(KEYS, seed=2) > 0.5
    weights = draw(7, seed=3)
    logits = anchors @ keys.T
    whole = logits.masked_fill(hidden, -math.inf).logsumexp(dim=1)
    (expected,) = torch.autograd.grad((weights * whole).sum(), anchors)
    tiles = streamed_logsumexp(anchors, keys, hidden)
    (gradient,) = torch.autograd.grad((weights * tiles).sum(), anchors)
    torch.testing.assert_close(tiles, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_fully_masked_tiles() -> None:
    anchors, keys = draw(3, DIM).requires_grad_(), draw(KEYS, DIM, seed=1)
    for shown in (slice(8, 9), slice(22, 23), slice(0, 1)):
        hidden = torch.ones(KEYS, dtype=torch.bool)
        hidden[shown] = False
        value = streamed_logsumexp(anchors, keys, hidden)
        torch.testing.assert_close(value, (anchors @ keys[shown].T)[:, 0])
    nothing = streamed_logsumexp(anchors, keys, torch.ones(KEYS, dtype=torch.bool))
    assert nothing.tolist() == [-math.inf] * 3
    (gradient,) = torch.autograd.grad(torch.logaddexp(anchors.sum(dim=1), nothing).sum(), anchors)
    assert torch.equal(gradient, torch.ones_like(anchors)), "an empty bank adds nothing, and no NaN"


def test_bfloat16_keys_are_accumulated_in_the_precision_of_the_anchors() -> None:
    anchors, hidden = (20 * unit(draw(6, 64))).float().requires_grad_(), torch.zeros(KEYS, dtype=torch.bool)
    keys = unit(draw(KEYS, 64, seed=1))
    exact = (anchors.double() @ keys.T).logsumexp(dim=1)
    value = streamed_logsumexp(anchors, keys.bfloat16(), hidden)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=0, atol=0.05)
    (gradient,), (expected,) = (torch.autograd.grad(each.sum(), anchors) for each in (value, exact))
    assert torch.nn.functional.cosine_similarity(gradient, expected).min() > 0.999


def test_float32_error_stays_within_rounding() -> None:
    anchors, keys = 20 * unit(draw(4, DIM)), draw(KEYS, DIM, seed=1)
    hidden = torch.zeros(KEYS, dtype=torch.bool)
    exact = streamed_logsumexp(anchors, keys, hidden)
    value = streamed_logsumexp(anchors.float(), keys.float(), hidden)
    torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=0)


def test_a_tiled_sum_has_the_value_and_gradients_of_the_whole() -> None:
    anchors, weight, fixed = (
        draw(7, 3).requires_grad_(),
        draw(3, DIM, seed=4).requires_grad_(),
        draw(7, seed=5),
    )
    keys, hidden = draw(KEYS, DIM, seed=1), draw(KEYS, seed=2) > 0.5
    sizes = []

    def of_tile(keys_TE: Tensor, anchors: Tensor, fixed: Tensor, weight: Tensor) -> Tensor:
        sizes.append(len(keys_TE))
        return (fixed[:, None] - anchors @ (keys_TE @ weight.T).T).tanh().sum()

    whole = of_tile(keys[~hidden], anchors, fixed, weight)
    expected = torch.autograd.grad(3 * whole, (anchors, weight))
    del sizes[:]
    tiles = streamed_sum(of_tile, keys, hidden, anchors, fixed, weight)
    gradients = torch.autograd.grad(3 * tiles, (anchors, weight))
    assert max(sizes) <= 4 and sum(sizes) == int((~hidden).sum()), "every tile is visited once"
    torch.testing.assert_close(tiles, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        assert torch.equal(streamed_sum(of_tile, keys, hidden, anchors, fixed, weight), tiles)


def test_an_empty_sum_and_its_gradient_are_zero() -> None:
    anchors, hidden = draw(3, DIM).requires_grad_(), torch.ones(KEYS, dtype=torch.bool)
    nothing = streamed_sum(
        lambda keys, anchors_: (anchors_ @ keys.T).sum(), draw(KEYS, DIM, seed=1), hidden, anchors
    )
    (gradient,) = torch.autograd.grad(nothing, anchors)
    assert nothing.item() == 0 and torch.equal(gradient, torch.zeros_like(anchors))
