"""Accuracy and F1 of a fine-tuned head, and of untuned vectors with a threshold on cosines (SRA, Table 5)."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import Encoder, FloatArray, IntArray, Scorer
from stillhouse.corpora.published.glue import TASKS, LabelledData, Row, read_task
from stillhouse.corpora.row_shares import stratified
from stillhouse.evaluation.items import Items, Part, means
from stillhouse.evaluation.metrics import Values, cosines, number

POSITIVE = 1


class Classification:
    """Accuracy of a scorer's most likely class, and F1 of class 1 if there are two classes.

    Figures: ``{name}_accuracy``, ``{name}_f1``; an empty name takes the task's.
    """

    version: ClassVar[int] = 1
    unit: ClassVar[str] = "texts or pairs"
    needs_scorer: ClassVar[bool] = True

    def __init__(self, data: LabelledData, name: str = "") -> None:
        self.rows, self.split = read_task(data), _kind(data.split)
        self.name, self.classes = name or data.task, len(TASKS[data.task].labels)

    def counts(self) -> dict[str, int]:
        """Count the rows that are scored."""
        return {self.name: len(self.rows)}

    def __call__(self, model: Scorer) -> dict[str, float]:
        """Score every row."""
        first, second, labels_N = _columns(self.rows)
        scores_NC = model.score(first, second)
        if scores_NC.shape != (len(labels_N), self.classes):
            raise BadInput(
                f"a scorer must return one score per row and class, {(len(labels_N), self.classes)}, but "
                f"returned {scores_NC.shape}."
            )
        predicted_N = scores_NC.argmax(axis=1)
        figures = {f"{self.name}_accuracy": accuracy(predicted_N, labels_N)}
        return figures | ({f"{self.name}_f1": f1(predicted_N, labels_N)} if self.classes == 2 else {})


class CosineThreshold:
    """Untuned vectors of pairs: a pair is positive if its cosine reaches a threshold.

    Figures: ``{name}_cosine_accuracy`` and ``{name}_cosine_f1``, each at the threshold that is best for it on
    ``fit``. The names are those of sentence-transformers, which chooses its thresholds on the scored rows.

    Args:
        data: Rows to score: pairs with two classes.
        fit: Rows that the thresholds are chosen on, such as the train split.
        fit_rows: Number of rows of ``fit`` to use, with the classes in proportion; 0 uses all.
        name: Prefix of the figures' names; empty takes the task's name.

    Raises:
        BadInput: If the task has another form, or both splits are the same file.
    """

    version: ClassVar[int] = 1
    unit: ClassVar[str] = "pairs"

    def __init__(self, data: LabelledData, fit: LabelledData, name: str = "", fit_rows: int = 0) -> None:
        for each in (data, fit):
            task = TASKS[each.task]
            if not task.second or len(task.labels) != 2:
                raise BadInput(f"a threshold needs a task of pairs with two classes, but {each.task} is not.")
        if data.sha256 == fit.sha256:
            raise BadInput(
                f"thresholds must be chosen on other rows than are scored, but {data.path} is both."
            )
        self.rows, self.fit, self.split = read_task(data), read_task(fit), _kind(data.split)
        if 0 < fit_rows < len(self.fit):
            self.fit = stratified(self.fit, fit_rows / len(self.fit))
        self.name, self.positive = name or data.task, _positive(data.task)

    def counts(self) -> dict[str, int]:
        """Count the rows that are scored."""
        return {self.name: len(self.rows)}

    def __call__(self, model: Encoder) -> dict[str, float]:
        """Encode every text once, choose the thresholds on ``fit``, and measure on ``data``."""
        fit_N, fit_labels_N = self._scored(model, self.fit)
        cosines_N, labels_N = self._scored(model, self.rows)
        figures = {}
        for measure, kind in ((accuracy, "accuracy"), (f1, "f1")):
            threshold = best_threshold(fit_N, fit_labels_N, kind)
            predicted_N = (cosines_N >= threshold).astype(np.int64)
            figures[f"{self.name}_cosine_{kind}"] = measure(predicted_N, labels_N)
            figures[f"{self.name}_cosine_{kind}_threshold"] = threshold
        return figures

    def _scored(self, model: Encoder, rows: Sequence[Row]) -> tuple[Values, IntArray]:
        first, second, labels_N = _columns(rows)
        assert second is not None
        return cosines(*encode_sides(model, [first, second])), (labels_N == self.positive).astype(np.int64)


def accuracy(predicted_N: IntArray, labels_N: IntArray) -> float:
    """Return the share of rows whose class is predicted correctly."""
    return float((predicted_N == labels_N).mean())


def f1(predicted_N: IntArray, labels_N: IntArray) -> float:
    """Return F1 of class 1; 0 where the class is neither predicted nor among the labels."""
    from sklearn.metrics import f1_score

    figures = f1_score(labels_N, predicted_N, labels=[POSITIVE], average=None, zero_division=0)
    return float(figures[0])


def class_items(prefix: str, predicted_N: IntArray, labels_N: IntArray, *, with_f1: bool) -> dict[str, Items]:
    """Make the items of ``{prefix}accuracy`` and, of class 1, ``{prefix}f1``, × 100."""
    items = means({f"{prefix}accuracy": predicted_N == labels_N}, scale=100)
    if with_f1:
        part = Part(np.asarray(predicted_N, np.float64), np.asarray(labels_N, np.float64))
        items[f"{prefix}f1"] = Items((part,), "f1", 100)
    return items


def best_threshold(cosines_N: Values, labels_N: IntArray, measure: str = "accuracy") -> float:
    """Find the threshold at which ``cosine >= threshold`` predicts class 1 best.

    Args:
        cosines_N: Cosine of each pair.
        labels_N: 1 for a positive pair, else 0.
        measure: ``accuracy`` or ``f1``.

    Returns:
        The middle between two neighbouring cosines; the highest of equally good ones, and above all cosines
        if predicting no positive pair is best.
    """
    require(len(cosines_N) > 0, "rows to choose a threshold on >= 1", rows=0)
    order = np.argsort(-cosines_N, kind="stable")
    ranked, positive = cosines_N[order], labels_N[order] == POSITIVE
    predicted: npt.NDArray[np.int64] = np.arange(len(ranked) + 1)
    hits = np.concatenate([[0], np.cumsum(positive)])
    if measure == "f1":
        figure = 2 * hits / np.maximum(predicted + hits[-1], 1)
    else:
        figure = (hits + (len(ranked) - predicted) - (hits[-1] - hits)) / len(ranked)
    # Equal cosines get the same prediction, so no cut is possible between them.
    figure[1:-1][ranked[1:] == ranked[:-1]] = -1
    cut = int(figure.argmax())
    above = ranked[cut - 1] if cut else ranked[0] + 1
    below = ranked[cut] if cut < len(ranked) else ranked[-1] - 1
    middle = (above + below) / 2
    return float(middle if below < middle else above)


def _positive(task: str) -> int:
    """Return the class that a high cosine indicates: entailment if it is a class, else class 1."""
    labels = TASKS[task].labels
    return labels.index("entailment") if "entailment" in labels else POSITIVE


def _kind(split: str) -> str:
    """Return ``dev`` or ``test``; any split that is not the test set may be used for selection."""
    return "test" if split == "test" else "dev"


def _columns(rows: Sequence[Row]) -> tuple[list[str], list[str] | None, IntArray]:
    first, second = [row.first for row in rows], [row.second for row in rows if row.second is not None]
    return first, second or None, np.array([row.label for row in rows])


def encode_sides(model: Encoder, sides: Sequence[Sequence[str]]) -> list[FloatArray]:
    """Encode every distinct text once, and return the vectors of each side, (N, D)."""
    row_of = number(sides)
    vectors_ND = np.asarray(model.encode(list(row_of)))
    return [vectors_ND[[row_of[text] for text in side]] for side in sides]
