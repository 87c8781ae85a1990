"""GLUE on frozen vectors: a logistic head (tuned), and a threshold on cosines (untuned).

* Tuned: logistic regression on u for single texts, on (|u - v|, u ⊙ v) for paraphrases as in SentEval, and on
  (u, v, |u - v|, u ⊙ v) for entailment as in InferSent. C is chosen on a stratified tenth of the rows to fit
  on, and the head is then fitted on all of them.
* Untuned: a pair is positive if its cosine reaches a threshold, the one that is best for each figure on the
  rows to fit on.
* If the split to fit on or the split to measure is missing, the rows of the other are split into halves, and
  each half is measured with a head or threshold fitted on the other.

Figures are × 100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stillhouse.core.types import ColumnScorer, Encoder, FloatArray, IntArray, Scorer
from stillhouse.corpora.published.glue import TASKS, Row
from stillhouse.corpora.row_shares import stratified
from stillhouse.evaluation.classification import best_threshold, class_items
from stillhouse.evaluation.items import Items
from stillhouse.evaluation.logistic import fit_logistic, path_accuracy, predict_logistic
from stillhouse.evaluation.metrics import Values, cosines
from stillhouse.evaluation.search.exact import require_finite
from stillhouse.evaluation.senteval import SPLIT_C, stratified_folds

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

FIT_ROWS = 20_000
"""Most rows to fit on; more of them hardly change the figures and take hours in float64."""

_HELD_OUT = 10


@dataclass(frozen=True)
class GlueSet:
    """A task's rows to fit on and to measure; with none to fit on, those to measure are split into halves."""

    task: str
    fit: list[Row]
    rows: list[Row]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(TASKS[self.task].labels)

    @property
    def pairs(self) -> bool:
        """True if the rows are pairs of texts."""
        return bool(TASKS[self.task].second)


def glue_set(task: str, fit: Sequence[Row], rows: Sequence[Row]) -> tuple[GlueSet, list[str]]:
    """Make a set with no row on both sides and at most `FIT_ROWS` rows to fit on, and notes on the rest."""
    measured = {(row.first, row.second) for row in rows}
    kept, notes = [row for row in fit if (row.first, row.second) not in measured], []
    if len(kept) < len(fit):
        notes.append(f"{len(fit) - len(kept)} rows of train that are also measured were left out")
    if len(kept) > FIT_ROWS:
        notes.append(f"fitted on {FIT_ROWS:,} of {len(kept):,} rows of train, classes in proportion")
        kept = stratified(kept, FIT_ROWS / len(kept))
    if not kept:
        notes.append("fitted on one half of the rows, measured on the other, both ways")
    return GlueSet(task, kept, list(rows)), notes


def measure_glue(data: GlueSet, model: Encoder) -> dict[str, Items]:
    """Measure ``tuned_accuracy``, for two classes ``tuned_f1``, and for paraphrases ``cosine_…``."""
    vectors = _vectors(data, model)
    fit_N, rows_N = labels(data.fit), labels(data.rows)
    x, y = features(data, data.rows, vectors), rows_N
    predicted_N = np.empty(len(rows_N), np.int64)
    for inside, outside in _parts(data):
        known = (features(data, data.fit, vectors), fit_N) if data.fit else (x[inside], y[inside])
        predicted_N[outside] = predict_logistic(x[outside], fit_head(*known))
    items = class_items("tuned_", predicted_N, rows_N, with_f1=data.classes == 2)
    return items | (_by_cosine(data, vectors) if data.pairs and data.classes == 2 else {})


def measure_head(data: GlueSet, model: Scorer) -> dict[str, Items]:
    """Measure ``head_accuracy`` and, for two classes, ``head_f1``; nothing if the head has another form."""
    first = [row.first for row in data.rows]
    second = [row.second or "" for row in data.rows] if data.pairs else None
    if not isinstance(model, ColumnScorer) or len(model.columns) != (2 if data.pairs else 1):
        return {}
    scores = model.score(first, second)
    if scores.ndim != 2 or scores.shape[1] != data.classes:
        return {}
    require_finite(scores, "scores of the head")
    return class_items("head_", scores.argmax(axis=1), labels(data.rows), with_f1=data.classes == 2)


def features(data: GlueSet, rows: Sequence[Row], vectors: Mapping[str, FloatArray]) -> FloatArray:
    """Compute the features of a task's head, (N, D), (N, 2 D) or (N, 4 D), in float64."""
    u = np.array([vectors[row.first] for row in rows], np.float64)
    if not data.pairs:
        return u
    v = np.array([vectors[row.second or ""] for row in rows], np.float64)
    symmetric = [np.abs(u - v), u * v]
    return np.concatenate(symmetric if data.classes == 2 else [u, v, *symmetric], axis=1)


def fit_head(x_ND: FloatArray, labels_N: IntArray) -> "LogisticRegression":
    """Fit a classifier on all rows, with the C that is best on a stratified tenth of them."""
    fold_N = stratified_folds(labels_N, _HELD_OUT)
    inside, held = fold_N != 0, fold_N == 0
    figures_C = path_accuracy(x_ND[inside], labels_N[inside], x_ND[held], labels_N[held], SPLIT_C)
    return fit_logistic(x_ND, labels_N, SPLIT_C[int(figures_C.argmax())])


def labels(rows: Sequence[Row]) -> IntArray:
    """Return the label of every row."""
    return np.array([row.label for row in rows], np.int64)


def _by_cosine(data: GlueSet, vectors: Mapping[str, FloatArray]) -> dict[str, Items]:
    rows_N, cosines_N = labels(data.rows), _cosines(data.rows, vectors)
    items = {}
    for name in ("accuracy", "f1"):
        predicted_N = np.empty(len(rows_N), np.int64)
        for inside, outside in _parts(data):
            known = (
                (_cosines(data.fit, vectors), labels(data.fit))
                if data.fit
                else (cosines_N[inside], rows_N[inside])
            )
            predicted_N[outside] = cosines_N[outside] >= best_threshold(*known, name)
        found = class_items("cosine_", predicted_N, rows_N, with_f1=True)
        items[f"cosine_{name}"] = found[f"cosine_{name}"]
    return items


def _parts(data: GlueSet) -> list[tuple[IntArray, IntArray]]:
    """Return pairs of rows to fit on (empty if ``fit`` has them) and rows to measure."""
    every = np.arange(len(data.rows))
    if data.fit:
        return [(every[:0], every)]
    fold_N = stratified_folds(labels(data.rows), 2)
    return [(every[fold_N != half], every[fold_N == half]) for half in (0, 1)]


def _vectors(data: GlueSet, model: Encoder) -> dict[str, FloatArray]:
    """Encode every distinct text once."""
    texts = dict.fromkeys(text for row in (*data.fit, *data.rows) for text in row[:2] if text is not None)
    return dict(zip(texts, np.asarray(model.encode(list(texts))), strict=True))


def _cosines(rows: Sequence[Row], vectors: Mapping[str, FloatArray]) -> Values:
    return cosines(*(np.array([vectors[row[side]] for row in rows]) for side in (0, 1)))  # type: ignore[index]
