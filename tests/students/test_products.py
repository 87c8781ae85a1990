"""Products by oneDNN equal torch's up to rounding and are used only for float32 on a CPU."""

from typing import Any

import pytest
import torch
from rows import each_row
from torch import Tensor, nn

from stillhouse.students.cpu import products
from stillhouse.students.cpu.products import LEAST_ROWS, laid_out, linear, quick_products


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@each_row("rows", [1, LEAST_ROWS - 1, LEAST_ROWS, 100])
@each_row("bias", [None, draw(7, seed=2)])
def test_a_product_is_exact_up_to_float32_rounding(rows: int, bias: Tensor | None) -> None:
    states, weight = draw(rows, 33), draw(7, 33, seed=1)
    exact = nn.functional.linear(states.double(), weight.double(), None if bias is None else bias.double())
    for given in (weight, laid_out(weight), laid_out(laid_out(weight))):
        torch.testing.assert_close(linear(states, given, bias).double(), exact, rtol=1e-5, atol=1e-5)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    plain = products.linear

    def counting(*given: Any) -> Tensor:
        calls.append(1)
        return plain(*given)

    monkeypatch.setattr(products, "linear", counting)
    return calls


def test_linear_layers_of_any_shape_use_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, layer, states = counted(monkeypatch), nn.Linear(5, 3), draw(4, 6, 5)
    with torch.inference_mode():
        expected = layer(states)
        with quick_products("cpu", "float32"):
            torch.testing.assert_close(layer(states), expected)
            torch.testing.assert_close(nn.Linear(5, 3, bias=False)(states).shape, expected.shape)
    assert len(calls) == 2


def test_other_precisions_and_devices_are_unaffected(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, layer, states = counted(monkeypatch), nn.Linear(5, 3), draw(20, 5)
    with torch.inference_mode():
        with quick_products("cpu", "bfloat16"), torch.autocast("cpu", torch.bfloat16):
            assert layer(states).dtype == torch.bfloat16
        with quick_products("cpu", "float32"), torch.autocast("cpu", torch.bfloat16):
            assert layer(states).dtype == torch.bfloat16
        with quick_products("cpu", "float32"):
            assert layer.double()(states.double()).dtype == torch.float64
        with quick_products("cuda", "float32"):
            layer.float()(states)
    assert calls == []
