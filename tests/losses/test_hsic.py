"""HSIC compared with the trace formula in loops, closed forms and invariants."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.losses.hsic import HSIC


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_gram(points: np.ndarray[Any, Any], loss: HSIC) -> np.ndarray[Any, Any]:
    """Compute the kernel matrix entry by entry."""
    if loss.normalize or (loss.forms == "code" and loss.kernel == "linear"):
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    rows = len(points)
    gamma = loss.gamma
    if loss.bandwidth == "median":
        squares = sorted(float(((points[i] - points[j]) ** 2).sum()) for i in range(rows) for j in range(i))
        gamma = 1 / squares[(len(squares) - 1) // 2]
    gram = np.zeros((rows, rows))
    for i in range(rows):
        for j in range(rows):
            squared = float(((points[i] - points[j]) ** 2).sum())
            gram[i, j] = {
                "rbf": math.exp(-gamma * squared),
                "imq": 1 / math.sqrt(1 + gamma * squared)
                if loss.forms == "usual"
                else 1 / math.sqrt((1 / gamma if loss.bandwidth == "median" else gamma) + squared),
                "linear": float(points[i] @ points[j]),
            }[loss.kernel]
    return gram


@each_row("kernel", ["rbf", "imq", "linear"])
@each_row("bandwidth", ["fixed", "median"])
@each_row("normalize", [True, False])
@each_row("estimator", ["biased_l2", "biased"])
@each_row("forms", ["usual", "code"])
def test_hsic_is_the_trace_formula(
    kernel: str, bandwidth: str, normalize: bool, estimator: str, forms: str
) -> None:
    loss = HSIC(
        kernel=kernel,
        forms=forms,
        gamma=0.3,
        bandwidth=bandwidth,
        normalize=normalize,
        estimator=estimator,
    )
    inputs, student = draw(7, 5), draw(7, 3, seed=1)
    rows = 7
    center = np.eye(rows) - np.ones((rows, rows)) / rows
    grams = slow_gram(inputs.numpy(), loss), slow_gram(student.numpy(), loss)
    trace = np.trace(grams[0] @ center @ grams[1] @ center)
    expected = trace / (rows**2 if estimator == "biased_l2" else (rows - 1) ** 2)
    assert loss(inputs, student).item() == pytest.approx(expected, rel=1e-10)
    off = ~np.eye(rows, dtype=bool)
    for mean, gram in zip(loss.kernel_means(inputs, student), grams, strict=True):
        assert mean.item() == pytest.approx(gram[off].mean(), rel=1e-10)


def test_the_linear_kernel_gives_the_squared_cross_covariance() -> None:
    inputs, student = draw(9, 4), draw(9, 2, seed=1)
    covariance = (inputs - inputs.mean(0)).T @ (student - student.mean(0)) / 9
    value = HSIC(kernel="linear", normalize=False)(inputs, student)
    assert value.item() == pytest.approx(covariance.square().sum().item(), rel=1e-12)


@pytest.mark.parametrize(("estimator", "floor"), [("biased_l2", 15 / 16**2), ("biased", 1 / 15)])
def test_identity_kernels_give_the_floor(estimator: str, floor: float) -> None:
    loss = HSIC(gamma=1e6, estimator=estimator)
    assert loss(draw(16, 4), draw(16, 4, seed=1)).item() == pytest.approx(floor, rel=1e-6)


@each_row("kernel", ["rbf", "imq", "linear"])
def test_hsic_with_a_constant_is_zero(kernel: str) -> None:
    loss, constant = HSIC(kernel=kernel), torch.ones(32, 4)
    assert loss(draw(32, 6).float(), constant).item() == 0
    assert abs(loss(constant, draw(32, 6).float()).item()) < 1e-7


def test_the_kernels_of_the_authors_code() -> None:
    inputs, student = 3 * draw(6, 4), 5 * draw(6, 2, seed=1)
    center = torch.eye(6, dtype=torch.float64) - 1 / 6

    def value(kernel: Callable[[Tensor], Tensor]) -> float:
        return float((kernel(inputs) @ center @ kernel(student) @ center).trace()) / 25

    def linear(points: Tensor) -> Tensor:
        rows = torch.nn.functional.normalize(points, dim=1)
        return rows @ rows.T

    switches: dict[str, Any] = {"forms": "code", "normalize": False, "estimator": "biased"}
    imq = HSIC(kernel="imq", gamma=0.7, **switches)(inputs, student).item()
    assert imq == pytest.approx(value(lambda points: (torch.cdist(points, points) ** 2 + 0.7) ** -0.5))
    assert HSIC(kernel="linear", **switches)(inputs, student).item() == pytest.approx(value(linear))


def test_hsic_invariants() -> None:
    loss, inputs, student = HSIC(), draw(10, 4), draw(10, 4, seed=1)
    value, order = loss(inputs, student), torch.randperm(10, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(loss(inputs[order], student[order]), value, rtol=1e-12)
    assert torch.allclose(loss(student, inputs), value, rtol=1e-12)
    assert torch.allclose(loss(inputs * 7, student * 0.1), value, rtol=1e-12)
    rotation = torch.linalg.qr(draw(4, 4, seed=2)).Q
    assert torch.allclose(loss(inputs @ rotation, student), value, rtol=1e-10)
    assert value >= 0


def test_dependence_is_detected_above_chance() -> None:
    loss, inputs = HSIC(bandwidth="median"), draw(200, 3)
    chance = loss(inputs, draw(200, 3, seed=1))
    assert loss(inputs, inputs.square()) > 2 * chance
    assert loss(inputs, inputs) > 4 * chance


def test_distances_far_from_the_origin_survive_float32() -> None:
    loss, inputs, student = HSIC(normalize=False), draw(16, 4), draw(16, 4, seed=1)
    near = loss(inputs, student).item()
    assert loss((inputs + 100).float(), (student - 100).float()).item() == pytest.approx(near, rel=1e-3)


@each_row("kernel", ["rbf", "imq", "linear"])
@each_row("normalize", [True, False])
@each_row("forms", ["usual", "code"])
def test_gradient_of_hsic(kernel: str, normalize: bool, forms: str) -> None:
    loss = HSIC(kernel=kernel, normalize=normalize, forms=forms)
    inputs = (draw(5, 3).requires_grad_(), draw(5, 2, seed=1).requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)


def test_no_gradient_flows_through_the_median_bandwidth() -> None:
    inputs, student = draw(6, 3), draw(6, 3, seed=1).requires_grad_()
    (median,) = torch.autograd.grad(HSIC(kernel="rbf", bandwidth="median")(inputs, student), student)
    unit = torch.nn.functional.normalize(student.detach(), dim=1)
    gamma = 1 / torch.pdist(unit).square().median().item()
    gamma_x = 1 / torch.pdist(torch.nn.functional.normalize(inputs, dim=1)).square().median().item()
    # Both share γ, so X is rescaled to restore its own bandwidth.
    fixed = HSIC(gamma=gamma, normalize=False)
    scaled = torch.nn.functional.normalize(inputs, dim=1) * math.sqrt(gamma_x / gamma)
    (expected,) = torch.autograd.grad(fixed(scaled, torch.nn.functional.normalize(student, dim=1)), student)
    assert torch.allclose(median, expected, rtol=1e-8, atol=1e-12)


def test_detached_inputs_get_no_gradient() -> None:
    inputs, student = draw(5, 3).requires_grad_(), draw(5, 3, seed=1).requires_grad_()
    HSIC(detach_inputs=True)(inputs, student).backward()
    assert inputs.grad is None and student.grad is not None
    HSIC()(inputs, student).backward()
    assert inputs.grad is not None and inputs.grad.abs().sum() > 0


def test_kernel_means_carry_no_gradient() -> None:
    means = HSIC().kernel_means(draw(4, 3).requires_grad_(), draw(4, 3).requires_grad_())
    assert not any(mean.requires_grad for mean in means)


@each_row("bandwidth", ["fixed", "median"])
@each_row("kernel", ["rbf", "imq", "linear"])
@each_row("rows", [2, 5])
@each_row("value", [0.0, 1.0])
def test_identical_and_zero_rows_stay_finite(bandwidth: str, kernel: str, rows: int, value: float) -> None:
    student = torch.full((rows, 3), value, requires_grad=True)
    inputs = draw(rows, 4).float()
    inputs[1] = inputs[0]
    result = HSIC(kernel=kernel, bandwidth=bandwidth)(inputs, student)
    result.backward()
    assert student.grad is not None
    assert result.isfinite() and student.grad.isfinite().all()


def test_bfloat16_and_autocast_compute_in_float32() -> None:
    inputs, student = draw(16, 8).bfloat16(), draw(16, 8, seed=1).bfloat16()
    exact = HSIC()(inputs.float(), student.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = HSIC()(inputs, student)
    assert value.dtype == torch.float32 and torch.equal(value, exact)


@each_row(
    ("switches", "message"),
    [
        ({"gamma": 0.0}, "gamma > 0"),
        ({"gamma": -1.0}, "gamma > 0"),
        ({"kernel": "rbg"}, "Did you mean rbf"),
        ({"forms": "paper"}, "forms in"),
        ({"bandwidth": "mean"}, "bandwidth in"),
        ({"estimator": "unbiased"}, "estimator in"),
    ],
)
def test_hsic_refuses(switches: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        HSIC(**switches)


def test_hsic_refuses_one_text_and_unequal_batch_sizes() -> None:
    with pytest.raises(BadInput, match="batch >= 2"):
        HSIC()(torch.ones(1, 3), torch.ones(1, 2))
    with pytest.raises(BadInput, match="one vector per text"):
        HSIC()(torch.ones(4, 3), torch.ones(5, 2))
