"""GLUE on frozen vectors: heads match scikit-learn, no scored row is fitted on, halves are cross-fitted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from stillhouse.core.types import FloatArray
from stillhouse.corpora.published.glue import Row
from stillhouse.evaluation import glue_probes
from stillhouse.evaluation.glue_probes import FIT_ROWS, glue_set, measure_glue, measure_head
from stillhouse.evaluation.items import Items
from stillhouse.evaluation.senteval import SPLIT_C, stratified_folds

DRAW = np.random.default_rng(0)
LETTERS = "abcde"


class Letters:
    """An encoder of letter frequencies that counts the texts it receives."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.seen += texts
        return np.array(
            [[text.count(letter) / len(text) for letter in LETTERS] for text in texts], np.float32
        )


def word(letters: str = LETTERS, size: int = 9) -> str:
    return "".join(DRAW.choice(list(letters), size))


def paraphrases(count: int) -> list[Row]:
    """Return pairs with equal or random letters; a tenth of the labels are flipped."""
    rows = []
    for at in range(count):
        first, alike = word(), at % 3 == 0
        second = "".join(DRAW.permutation(list(first))) if alike else word()
        rows.append(Row(first, second, int(alike) ^ int(at % 10 == 7)))
    return rows


def figures(items: dict[str, Items]) -> dict[str, float]:
    return {name: each.figure() for name, each in items.items()}


def test_tuned_matches_scikit_learn_and_untuned_uses_the_best_threshold() -> None:
    train, dev = paraphrases(200), paraphrases(120)
    data, notes = glue_set("qqp", train, dev)
    model = Letters()
    found = figures(measure_glue(data, model))
    assert notes == [] and len(model.seen) == len(set(model.seen))

    def sides(rows: list[Row]) -> tuple[FloatArray, FloatArray]:
        u, v = (Letters().encode([str(row[side]) for row in rows]).astype(float) for side in (0, 1))
        return np.hstack([abs(u - v), u * v]), (u * v).sum(1) / np.sqrt((u**2).sum(1) * (v**2).sum(1))

    (x, cosine), (x_dev, cosine_dev) = sides(train), sides(dev)
    y, y_dev = np.array([row.label for row in train]), np.array([row.label for row in dev])
    fold = stratified_folds(y, 10)
    heads = [
        LogisticRegression(C=c, tol=1e-8, max_iter=5000).fit(x[fold != 0], y[fold != 0]) for c in SPLIT_C
    ]
    c = SPLIT_C[int(np.argmax([head.score(x[fold == 0], y[fold == 0]) for head in heads]))]
    predicted = LogisticRegression(C=c, tol=1e-8, max_iter=5000).fit(x, y).predict(x_dev)
    assert found["tuned_accuracy"] == pytest.approx(100 * (predicted == y_dev).mean())
    assert found["tuned_f1"] == pytest.approx(100 * f1_score(y_dev, predicted))
    tried = [-1, *np.unique(cosine) + 1e-7]
    for name, figure in (("accuracy", lambda a, b: (a == b).mean()), ("f1", f1_of)):
        on_fit = [figure(cosine >= t, y) for t in tried]
        on_dev = [figure(cosine_dev >= t, y_dev) for t in tried]
        ties = [dev for fit, dev in zip(on_fit, on_dev, strict=True) if fit == max(on_fit)]
        # The threshold lies midway between two cosines; the loop tries the lower of them.
        assert min(ties) - 0.02 <= found[f"cosine_{name}"] / 100 <= max(ties) + 0.02


def f1_of(predicted: Any, labels: Any) -> float:
    return float(2 * (predicted & (labels == 1)).sum() / (predicted.sum() + labels.sum()))


def test_without_train_rows_each_half_is_scored_by_the_other() -> None:
    rows = [Row("ab" * at + "a", None, 0) for at in range(1, 30)] + [
        Row("cd" * at + "c", None, 1) for at in range(1, 30)
    ]
    data, notes = glue_set("sst2", [], rows)
    assert notes == ["fitted on one half of the rows, measured on the other, both ways"]
    assert figures(measure_glue(data, Letters())) == {"tuned_accuracy": 100, "tuned_f1": 100}
    noise = [Row(word(), None, int(DRAW.integers(2))) for _ in range(300)]
    fitted = figures(measure_glue(glue_set("sst2", [], noise)[0], Letters()))
    assert 40 < fitted["tuned_accuracy"] < 60, "labels that mean nothing are not learned by heart"


def test_rows_in_both_splits_are_only_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    dev = [Row("a", "b", 0), Row("c", "d", 1)]
    data, notes = glue_set("mnli", [*dev, Row("e", "f", 2), Row("a", "c", 0)], dev)
    assert data.fit == [Row("e", "f", 2), Row("a", "c", 0)]
    assert notes == ["2 rows of train that are also measured were left out"]
    monkeypatch.setattr(glue_probes, "FIT_ROWS", 30)
    data, notes = glue_set("sst2", [Row(str(at), None, at % 2) for at in range(90)], [Row("x", None, 0)])
    assert len(data.fit) == 30 and sum(row.label for row in data.fit) == 15
    assert notes == ["fitted on 30 of 90 rows of train, classes in proportion"] and FIT_ROWS > 30


def test_entailment_has_a_head_of_three_classes_and_no_threshold() -> None:
    rows = [
        Row(first, {0: first, 1: "e" * 5, 2: first[0] * 7}[at % 3], at % 3)
        for at, first in ((at, word("ab") + word("cd")) for at in range(60))
    ]
    found = figures(measure_glue(glue_set("mnli", rows[:40], rows[40:])[0], Letters()))
    assert list(found) == ["tuned_accuracy"] and found["tuned_accuracy"] > 80


def test_a_head_scores_matching_tasks() -> None:
    class Head:
        columns = ("first", "second")

        def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> FloatArray:
            assert second is not None
            return np.array([[0.5, float(set(a) == set(b))] for a, b in zip(first, second, strict=True)])

    pairs = [Row("ab", "ba", 1), Row("ab", "cd", 0), Row("ab", "ab", 0), Row("a", "b", 1)]
    found = figures(measure_head(glue_set("qqp", [], pairs)[0], Head()))
    assert found == {"head_accuracy": 50, "head_f1": 50}
    assert measure_head(glue_set("mnli", [], pairs)[0], Head()) == {}
    assert measure_head(glue_set("sst2", [], [Row("a", None, 0)])[0], Head()) == {}
