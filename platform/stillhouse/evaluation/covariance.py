"""Covariance of the features of vectors: IBKD §4.7, Figure 4.

D  features    S  features that are drawn
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from stillhouse.core.types import FloatArray

SHOWN = 16
"""Number of features in the paper's figure, the first ones."""


def covariance(vectors_ND: FloatArray) -> npt.NDArray[np.float64]:
    """Compute the covariance of the features over the rows, (D, D), divided by N - 1."""
    return np.atleast_2d(np.cov(np.asarray(vectors_ND, np.float64), rowvar=False))


def feature_correlation(vectors_ND: FloatArray) -> float:
    """Compute the mean absolute correlation of two different features, in [0, 1]; lower is more disentangled.

    A constant feature has no correlation and is left out; the result is NaN if fewer than two features vary.
    Unlike the covariance, it does not depend on the scale of the vectors, so models can be compared.
    """
    covariance_DD = covariance(vectors_ND)
    deviation_D = np.sqrt(np.diag(covariance_DD))
    varies_D = deviation_D > 1e-9 * max(float(deviation_D.max()), 1e-30)
    count = int(varies_D.sum())
    if count < 2:
        return float("nan")
    kept_DD = covariance_DD[np.ix_(varies_D, varies_D)]
    kept_DD = np.abs(kept_DD / np.outer(deviation_D[varies_D], deviation_D[varies_D]))
    return float((kept_DD.sum() - np.trace(kept_DD)) / (count * (count - 1)))


def draw_covariance(vectors_ND: FloatArray, title: str, path: Path) -> None:
    """Draw the absolute covariances of the first 16 features as a PNG; darker is larger."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown_SS = np.abs(covariance(np.asarray(vectors_ND)[:, :SHOWN]))
    figure = Figure(figsize=(5.6, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    plot = figure.subplots()
    image = plot.imshow(shown_SS, cmap="Blues", vmin=0.0)
    ticks = range(0, len(shown_SS), 5)
    plot.set(title=title, xlabel="feature", ylabel="feature", xticks=ticks, yticks=ticks)
    figure.colorbar(image, label="|covariance|")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
