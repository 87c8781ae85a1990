"""Logistic regression with an L2 penalty, as scikit-learn fits it by L-BFGS in float64.

C Σ_i loss(x_i, y_i) + ½ ‖W‖²,    the intercept is not penalised; two classes share one weight vector
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stillhouse.core.errors import require
from stillhouse.core.types import FloatArray, IntArray

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

TOLERANCE = 1e-5
"""Largest absolute gradient of the mean loss at which a fit stops; scikit-learn's default is 1e-4."""


def fit_logistic(x_ND: FloatArray, labels_N: IntArray, c: float) -> "LogisticRegression":
    """Fit a classifier.

    Raises:
        BadInput: If `c` is not positive, or fewer than two classes occur.
    """
    return _fit(_classifier(c), x_ND, labels_N)


def path_accuracy(
    x_ND: FloatArray, labels_N: IntArray, held_ND: FloatArray, held_labels_N: IntArray, cs: Sequence[float]
) -> FloatArray:
    """Measure the accuracy on held-out rows at every C; each fit starts from the weights of the previous one.

    The warm start changes the time, not the optimum.
    """
    classifier = _classifier(cs[0], warm_start=True)
    figures = []
    for c in cs:
        classifier.set_params(C=c)
        _fit(classifier, x_ND, labels_N)
        figures.append(float(classifier.score(np.asarray(held_ND, np.float64), held_labels_N)))
    return np.array(figures)


def predict_logistic(x_ND: FloatArray, classifier: "LogisticRegression") -> IntArray:
    """Predict the most likely class of each row."""
    return np.asarray(classifier.predict(np.asarray(x_ND, np.float64)), np.int64)


def _classifier(c: float, *, warm_start: bool = False) -> "LogisticRegression":
    from sklearn.linear_model import LogisticRegression

    require(c > 0, "c > 0", c=c)
    return LogisticRegression(C=c, tol=TOLERANCE, max_iter=2000, warm_start=warm_start)


def _fit(classifier: "LogisticRegression", x_ND: FloatArray, labels_N: IntArray) -> "LogisticRegression":
    classes = np.unique(labels_N)
    require(len(classes) >= 2, "classes >= 2", classes=classes.tolist())
    return classifier.fit(np.asarray(x_ND, np.float64), labels_N)
