"""The fitted projection compared with scikit-learn, in one block and in many."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from rows import each_row
from sklearn.decomposition import PCA

from stillhouse.core.errors import BadInput
from stillhouse.losses.pca import Projection, fit_pca

Array = npt.NDArray[np.float32]


def vectors(rows: int = 300, dim: int = 12, offset: float = 2.0) -> Array:
    random = np.random.default_rng(0)
    spread = np.linspace(3.0, 0.2, dim)
    mixed = (random.normal(size=(rows, dim)) * spread) @ np.linalg.qr(random.normal(size=(dim, dim)))[0]
    return np.asarray(mixed + offset * random.normal(size=dim), dtype=np.float32)


def cut(rows: Array, *sizes: int) -> Iterator[Array]:
    edges = np.cumsum([0, *sizes])
    yield from (rows[a:b] for a, b in zip(edges, [*edges[1:], len(rows)], strict=True))


@each_row("sizes", [(), (7, 100, 0, 60), (1, 1, 1)])
def test_it_is_scikit_learns_pca(sizes: tuple[int, ...]) -> None:
    data = vectors()
    mean, components = fit_pca(cut(data, *sizes), 5)
    stock = PCA(5, svd_solver="full").fit(data.astype(np.float64))
    np.testing.assert_allclose(mean, stock.mean_, atol=1e-6)
    np.testing.assert_allclose(components, stock.components_, atol=1e-6)
    assert components.dtype == mean.dtype == np.float32


def test_a_large_mean_costs_no_precision() -> None:
    data = vectors().astype(np.float64) + 1e6
    stock = PCA(4, svd_solver="full").fit(data)
    components = fit_pca(cut(data, 50, 50), 4)[1]  # type: ignore[arg-type]
    np.testing.assert_allclose(components, stock.components_, atol=1e-6)


def test_only_the_blocks_of_the_first_rows_are_read() -> None:
    data, read = vectors(), []

    def blocks() -> Iterator[Array]:
        for number, block in enumerate(cut(data, 40, 40, 40)):
            read.append(number)
            yield block

    streamed = fit_pca(blocks(), 3, rows=60)
    assert read == [0, 1]
    for one, other in zip(streamed, fit_pca([data[:60]], 3), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    everything = fit_pca([data], 3, rows=0)[1]
    assert not np.allclose(streamed[1], everything, atol=1e-3)


def test_signs_are_fixed_and_rows_orthonormal() -> None:
    data = vectors()
    components = fit_pca([data], 12)[1]
    largest = np.abs(components).argmax(axis=1)
    assert (components[np.arange(12), largest] > 0).all()
    np.testing.assert_allclose(components @ components.T, np.eye(12), atol=1e-5)
    np.testing.assert_allclose(fit_pca([-data], 12)[1], components, atol=1e-5)


def test_half_precision_blocks_are_accepted() -> None:
    data = vectors().astype(np.float16)
    np.testing.assert_array_equal(fit_pca([data], 3)[1], fit_pca([data.astype(np.float32)], 3)[1])  # type: ignore[list-item]


@pytest.mark.parametrize("centred", [True, False])
def test_the_module_applies_the_fitted_projection(centred: bool) -> None:
    data = vectors()
    mean, components = fit_pca([data], 4)
    mean = mean if centred else np.zeros_like(mean)
    module = Projection(mean, components)
    projected = module(torch.from_numpy(data))
    np.testing.assert_allclose(projected.numpy(), (data - mean) @ components.T, atol=1e-4)
    again = Projection(np.zeros(12, np.float32), np.zeros((4, 12), np.float32))
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(torch.from_numpy(data)), projected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module(torch.from_numpy(data).bfloat16()).dtype == torch.float32
    assert not list(module.parameters())


@each_row(
    ("blocks", "switches", "rule"),
    [
        ([], {}, "vectors to fit to"),
        ([np.ones((9, 4))], {"dim": 5}, "dim <= dimension"),
        ([np.ones((9, 4))], {"dim": 0}, "dim >= 1"),
        ([np.ones((9, 4))], {"rows": -1}, "rows >= 0"),
        ([np.ones((3, 4))], {"dim": 3}, "number of rows > number of components"),
        ([np.ones((3, 4)), np.ones((3, 5))], {}, "shape of every block"),
        ([np.ones(4)], {}, "shape of every block"),
        ([np.full((9, 4), np.nan)], {}, "finite"),
    ],
)
def test_data_that_cannot_be_fitted_is_refused(
    blocks: list[Any], switches: dict[str, Any], rule: str
) -> None:
    with pytest.raises(BadInput, match=rule):
        fit_pca(blocks, **{"dim": 2, **switches})


def test_the_module_refuses_mismatched_shapes() -> None:
    with pytest.raises(BadInput, match="dimension that was fitted"):
        Projection(np.zeros(4, np.float32), np.zeros((2, 4), np.float32))(torch.ones(2, 3))
