"""Transfer as SentEval measures it: logistic regression on frozen vectors, accuracy × 100.

* MR, CR, SUBJ, MPQA: 10 stratified folds; in each, C is chosen by 10 inner folds of the other nine.
* SST-2: trained on train, C chosen on dev.
* TREC, MRPC: C is chosen by 10 folds of train, then the classifier is trained on all of train. The features
  of MRPC are (|u - v|, u ⊙ v), and F1 is reported too.

Each set has ``dev_accuracy``, the accuracy that C was chosen by. Folds are drawn by scikit-learn with
SentEval's seed. SentEval's setting for prototypes uses 5 folds throughout (`FAST_FOLDS`) and an optimiser
that stops early; here the optimum is found in both settings.
"""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import require
from stillhouse.core.types import Encoder, FloatArray, IntArray
from stillhouse.corpora.published.sentence_tasks import LabelledTexts
from stillhouse.evaluation.classification import class_items, encode_sides
from stillhouse.evaluation.items import Items, Part
from stillhouse.evaluation.logistic import fit_logistic, path_accuracy, predict_logistic
from stillhouse.evaluation.metrics import Values

FOLDS, FAST_FOLDS = 10, 5
SEED = 1111
SPLIT_C = tuple(2.0**t for t in range(-2, 4))
FOLDED_C = tuple(2.0**t for t in range(-1, 6))


def measure_task(
    task: str, splits: Mapping[str, LabelledTexts], model: Encoder, folds: int = FOLDS
) -> tuple[dict[str, float], dict[str, Items]]:
    """Measure ``accuracy`` where there is a test split or folds, ``f1`` of MRPC, and ``dev_accuracy``.

    Returns:
        The figures, and the items of all but ``dev_accuracy``.
    """
    x = {name: features(each, model) for name, each in splits.items()}
    y = {name: each.labels_N for name, each in splits.items()}
    if "all" in splits:
        dev, correct = folded_accuracy(x["all"], y["all"], folds)
        items = Items(tuple(map(Part, correct)), scale=100)
        return {"accuracy": items.figure(), "dev_accuracy": 100 * dev}, {"accuracy": items}
    if "dev" in splits:
        figures_C = path_accuracy(x["train"], y["train"], x["dev"], y["dev"], SPLIT_C)
        best = SPLIT_C[int(figures_C.argmax())]
    else:
        figures_C = inner_accuracy(x["train"], y["train"], FOLDED_C, folds)
        best = FOLDED_C[int(figures_C.argmax())]
    test_items: dict[str, Items] = {}
    if "test" in splits:
        predicted_N = predict_logistic(x["test"], fit_logistic(x["train"], y["train"], best))
        test_items = class_items("", predicted_N, y["test"], with_f1=task == "MRPC")
    figures = {name: each.figure() for name, each in test_items.items()}
    return {**figures, "dev_accuracy": 100 * float(figures_C.max())}, test_items


def features(data: LabelledTexts, model: Encoder) -> FloatArray:
    """Encode texts; pairs become the absolute difference and the product of their vectors, side by side."""
    sides = [np.asarray(each, np.float64) for each in encode_sides(model, data.sides)]
    if len(sides) == 1:
        return sides[0]
    return np.concatenate([np.abs(sides[0] - sides[1]), sides[0] * sides[1]], axis=1)


def folded_accuracy(x_ND: FloatArray, labels_N: IntArray, folds: int = FOLDS) -> tuple[float, list[Values]]:
    """Measure by nested folds.

    Returns:
        The mean accuracy on the inner folds at the best C, and for each outer fold 1 for every row that is
        classified correctly, else 0.
    """
    fold_N = stratified_folds(labels_N, folds)
    dev, correct = [], []
    for fold in range(folds):
        inside, outside = fold_N != fold, fold_N == fold
        figures_C = inner_accuracy(x_ND[inside], labels_N[inside], SPLIT_C, folds)
        classifier = fit_logistic(x_ND[inside], labels_N[inside], SPLIT_C[int(figures_C.argmax())])
        dev.append(float(figures_C.max()))
        hits_N = predict_logistic(x_ND[outside], classifier) == labels_N[outside]
        correct.append(np.asarray(hits_N, np.float64))
    return float(np.mean(dev)), correct


def inner_accuracy(x_ND: FloatArray, labels_N: IntArray, cs: Sequence[float], folds: int = FOLDS) -> Values:
    """Measure the mean accuracy over folds at every C."""
    fold_N = stratified_folds(labels_N, folds)
    each = [
        path_accuracy(
            *(x_ND[fold_N != fold], labels_N[fold_N != fold]),
            *(x_ND[fold_N == fold], labels_N[fold_N == fold]),
            cs,
        )
        for fold in range(folds)
    ]
    return np.asarray(np.mean(each, axis=0))


def stratified_folds(labels_N: IntArray, folds: int = FOLDS, seed: int = SEED) -> IntArray:
    """Draw the fold of each row, with the classes in the same proportions in every fold.

    Where every class has fewer rows than there are folds, the classes are left to chance.

    Raises:
        BadInput: If there are fewer rows than folds.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    require(len(labels_N) >= folds, "rows >= folds", rows=len(labels_N), folds=folds)
    stratify = np.unique(labels_N, return_counts=True)[1].max() >= folds
    splitter = (StratifiedKFold if stratify else KFold)(folds, shuffle=True, random_state=seed)
    fold_N: npt.NDArray[np.int64] = np.empty(len(labels_N), np.int64)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is missing from some of them; nothing else is possible.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        for fold, (_, rows) in enumerate(splitter.split(labels_N, labels_N)):
            fold_N[rows] = fold
    return fold_N
