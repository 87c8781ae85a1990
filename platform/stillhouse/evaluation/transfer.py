"""Transfer as SentEval measures it: logistic regression on frozen vectors, accuracy × 100.

* MR, CR, SUBJ, MPQA: 10 stratified folds; in each, C by 10 inner folds of the other nine.
* SST-2: trained on train, C on dev.
* TREC, MRPC: C by 10 folds of train, then trained on all of it. MRPC's features are (|u - v|, u ⊙ v); F1 too.

Each set has ``dev_accuracy``, what C was chosen by. The folds are drawn here, so figures differ from another
implementation's by the draw. SentEval's setting for prototypes takes 5 folds throughout (`FAST_FOLDS`) and an
optimiser that stops early; here the optimum is found in both.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stillhouse.core.types import Encoder, FloatArray, IntArray
from stillhouse.corpora.published.sentence_tasks import Labelled
from stillhouse.evaluation.classification import accuracy, class_items
from stillhouse.evaluation.items import Items, Part
from stillhouse.evaluation.logistic import Weights, fit_logistic, predict_logistic

FOLDS, FAST_FOLDS = 10, 5
SEED = 1111
SPLIT_C = tuple(2.0**t for t in range(-2, 4))
FOLDED_C = tuple(2.0**t for t in range(-1, 6))

Values = npt.NDArray[np.float64]


def measure_task(
    task: str, splits: Mapping[str, Labelled], model: Encoder, folds: int = FOLDS
) -> tuple[dict[str, float], dict[str, Items]]:
    """``accuracy`` where it is to be had (a test split, or folds), ``f1`` of MRPC, ``dev_accuracy``.

    Returns:
        The figures, and the items of all but ``dev_accuracy``.
    """
    classes = 1 + max(int(each.labels_N.max()) for each in splits.values())
    x = {name: features(each, model) for name, each in splits.items()}
    y = {name: each.labels_N for name, each in splits.items()}
    if "all" in splits:
        dev, reached = folded_accuracy(x["all"], y["all"], classes, folds)
        right = Items(tuple(map(Part, reached)), scale=100)
        return {"accuracy": right.figure(), "dev_accuracy": 100 * dev}, {"accuracy": right}
    if "dev" in splits:
        figures_C = path_accuracy(x["train"], y["train"], x["dev"], y["dev"], classes, SPLIT_C)
        best = SPLIT_C[int(figures_C.argmax())]
    else:
        figures_C = inner_accuracy(x["train"], y["train"], classes, FOLDED_C, folds)
        best = FOLDED_C[int(figures_C.argmax())]
    items: dict[str, Items] = {}
    if "test" in splits:
        weights = fit_logistic(x["train"], y["train"], classes, best)
        predicted_N = predict_logistic(x["test"], weights)
        items = class_items("", predicted_N, y["test"], with_f1=task == "MRPC")
    figures = {name: each.figure() for name, each in items.items()}
    return {**figures, "dev_accuracy": 100 * float(figures_C.max())}, items


def features(data: Labelled, model: Encoder) -> FloatArray:
    """Vectors of texts; of pairs the absolute difference and the product, side by side."""
    row_of = {
        text: row for row, text in enumerate(dict.fromkeys(text for side in data.sides for text in side))
    }
    vectors_ND = np.asarray(model.encode(list(row_of)), np.float64)
    sides = [vectors_ND[[row_of[text] for text in side]] for side in data.sides]
    if len(sides) == 1:
        return sides[0]
    return np.concatenate([np.abs(sides[0] - sides[1]), sides[0] * sides[1]], axis=1)


def folded_accuracy(
    x_ND: FloatArray, labels_N: IntArray, classes: int, folds: int = FOLDS
) -> tuple[float, list[Values]]:
    """Mean accuracy on the inner folds at the best C, and of every row of the outer folds if it is right."""
    fold_N = stratified_folds(labels_N, folds)
    dev, reached = [], []
    for fold in range(folds):
        inside, outside = fold_N != fold, fold_N == fold
        figures_C = inner_accuracy(x_ND[inside], labels_N[inside], classes, SPLIT_C, folds)
        best = SPLIT_C[int(figures_C.argmax())]
        weights = fit_logistic(x_ND[inside], labels_N[inside], classes, best)
        dev.append(float(figures_C.max()))
        right = predict_logistic(x_ND[outside], weights) == labels_N[outside]
        reached.append(np.asarray(right, np.float64))
    return float(np.mean(dev)), reached


def inner_accuracy(
    x_ND: FloatArray, labels_N: IntArray, classes: int, cs: Sequence[float], folds: int = FOLDS
) -> Values:
    """The mean accuracy over folds at every C."""
    fold_N = stratified_folds(labels_N, folds)
    each = [
        path_accuracy(
            *(x_ND[fold_N != fold], labels_N[fold_N != fold]),
            *(x_ND[fold_N == fold], labels_N[fold_N == fold]),
            classes,
            cs,
        )
        for fold in range(folds)
    ]
    return np.asarray(np.mean(each, axis=0))


def path_accuracy(
    x_ND: FloatArray,
    labels_N: IntArray,
    held_ND: FloatArray,
    held_labels_N: IntArray,
    classes: int,
    cs: Sequence[float],
) -> Values:
    """Accuracy on held-out rows at every C, each fit begun where the last one ended."""
    weights: Weights | None = None
    figures = []
    for c in cs:
        weights = fit_logistic(x_ND, labels_N, classes, c, weights)
        figures.append(accuracy(predict_logistic(held_ND, weights), held_labels_N))
    return np.array(figures)


def stratified_folds(labels_N: IntArray, folds: int = FOLDS, seed: int = SEED) -> IntArray:
    """The fold of each row: every class is shuffled and dealt out, so that folds differ by a row at most."""
    draw, dealt = np.random.default_rng(seed), 0
    fold_N: npt.NDArray[np.int64] = np.empty(len(labels_N), np.int64)
    for label in np.unique(labels_N):
        rows = draw.permutation(np.flatnonzero(labels_N == label))
        fold_N[rows] = (dealt + np.arange(len(rows))) % folds
        dealt += len(rows)
    return fold_N
