"""The least-squares start of a kept layer against a planted map and against numpy."""

import numpy as np
import pytest
import torch

from stillhouse.core.errors import BadInput
from stillhouse.training.least_squares import RIDGES, fitted


def test_it_finds_a_planted_map_and_the_ridge_that_noise_asks_for() -> None:
    generator = np.random.default_rng(0)
    x_NH, w_EH = generator.normal(size=(400, 8)), generator.normal(size=(12, 8))
    weight_EH, facts = fitted(torch.from_numpy(x_NH), torch.from_numpy(x_NH @ w_EH.T))
    assert facts["cosine"] == pytest.approx(1) and facts["ridge"] == RIDGES[0]
    np.testing.assert_allclose(weight_EH, w_EH, atol=1e-4)

    noisy_NE = x_NH[:12] @ w_EH.T + 20 * generator.normal(size=(12, 12))
    weight_EH, facts = fitted(torch.from_numpy(x_NH[:12]), torch.from_numpy(noisy_NE))
    gram_HH = x_NH[:12].T @ x_NH[:12]
    gram_HH += facts["ridge"] * np.diag(gram_HH).mean() * np.eye(8)
    np.testing.assert_allclose(weight_EH, np.linalg.solve(gram_HH, x_NH[:12].T @ noisy_NE).T, atol=1e-5)


def test_fewer_texts_than_dimensions_are_refused() -> None:
    with pytest.raises(BadInput, match=r"least_squares > 8.*but got 8 texts"):
        fitted(torch.zeros(8, 8), torch.zeros(8, 3))
