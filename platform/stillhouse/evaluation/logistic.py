"""Logistic regression with an L2 penalty, by L-BFGS in float64: the optimum that scikit-learn finds.

    C Σ_i loss(x_i, y_i) + ½ ‖W‖²,    the intercept free; two classes share one weight vector

K  weight vectors: 1 for two classes, else one a class
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from stillhouse.core.errors import require
from stillhouse.core.types import FloatArray, IntArray

Weights = npt.NDArray[np.float64]
"""(D + 1, K), the intercepts in the last row."""


def fit_logistic(
    x_ND: FloatArray, labels_N: IntArray, classes: int, c: float, start: Weights | None = None
) -> Weights:
    """The weights that minimise the objective.

    Args:
        x_ND: Features.
        labels_N: Classes from 0.
        classes: How many there are.
        c: Inverse strength of the penalty.
        start: Weights to begin at, such as those of the last ``c``; they change the time, not the optimum.
    """
    require(c > 0, "c > 0", c=c)
    require(classes >= 2, "classes >= 2", classes=classes)
    x_ND = np.asarray(x_ND, np.float64)
    rows, dim = x_ND.shape
    width = 1 if classes == 2 else classes
    targets_NK = np.eye(classes)[labels_N] if width > 1 else np.asarray(labels_N, np.float64)[:, None]

    def objective(flat: Weights) -> tuple[float, Weights]:
        weights = flat.reshape(dim + 1, width)
        z_NK = x_ND @ weights[:-1] + weights[-1]
        if width == 1:
            loss = (np.logaddexp(0.0, z_NK) - targets_NK * z_NK).sum()
            error_NK = expit(z_NK) - targets_NK
        else:
            logs_NK = log_softmax(z_NK, axis=1)
            loss = -(targets_NK * logs_NK).sum()
            error_NK = np.exp(logs_NK) - targets_NK
        slope = np.concatenate([x_ND.T @ error_NK + weights[:-1] / c, error_NK.sum(axis=0)[None]])
        penalty = (weights[:-1] ** 2).sum() / (2 * c)
        return float(loss + penalty) / rows, slope.ravel() / rows

    first = np.zeros((dim + 1) * width) if start is None else start.ravel()
    found = minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-12, "gtol": 1e-5},
    )
    return np.asarray(found.x).reshape(dim + 1, width)


def predict_logistic(x_ND: FloatArray, weights: Weights) -> IntArray:
    """The likeliest class of each row."""
    z_NK = np.asarray(x_ND, np.float64) @ weights[:-1] + weights[-1]
    predicted_N = z_NK.argmax(axis=1) if z_NK.shape[1] > 1 else z_NK[:, 0] > 0
    return np.asarray(predicted_N, np.int64)
