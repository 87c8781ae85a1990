"""Feature covariance against numpy and a closed form; its figure is darker for correlated features."""

from pathlib import Path

import numpy as np
import pytest

from stillhouse.evaluation.covariance import SHOWN, covariance, draw_covariance, feature_correlation

DRAW = np.random.default_rng(0)


def test_covariance_matches_loops() -> None:
    vectors = DRAW.normal(size=(40, 3)) @ DRAW.normal(size=(3, 3)) + 5
    mean = vectors.mean(0)
    for i in range(3):
        for j in range(3):
            slow = sum((row[i] - mean[i]) * (row[j] - mean[j]) for row in vectors) / 39
            assert covariance(vectors)[i, j] == pytest.approx(slow)
    each = [abs(np.corrcoef(vectors[:, i], vectors[:, j])[0, 1]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert feature_correlation(vectors) == pytest.approx(np.mean(each))
    assert feature_correlation(1000 * vectors - 3) == pytest.approx(np.mean(each))


def test_covariance_of_identical_and_independent_features() -> None:
    one = DRAW.normal(size=(50, 1))
    assert feature_correlation(np.hstack([one, -2 * one, 3 * one])) == pytest.approx(1)
    assert feature_correlation(DRAW.normal(size=(20_000, 4))) < 0.02
    constant = np.full((50, 1), 0.3, np.float32)
    assert feature_correlation(np.hstack([one, one, constant])) == pytest.approx(1)
    assert np.isnan(feature_correlation(np.hstack([one, constant])))
    assert np.isnan(feature_correlation(np.zeros((5, 3))))


def test_the_figure_is_darker_where_features_go_together(tmp_path: Path) -> None:
    from matplotlib.image import imread

    free = DRAW.normal(size=(4000, SHOWN + 4))
    tied = free.copy()
    tied[:, 1:] = free[:, :1]
    darkness = []
    for name, vectors in (("free", free), ("tied", tied)):
        draw_covariance(vectors, name, tmp_path / "new" / f"{name}.png")
        pixels = imread(tmp_path / "new" / f"{name}.png")
        darkness.append(float((1 - pixels[150:450, 100:450, :3]).mean()))
    assert darkness[0] < 0.35 * darkness[1]
