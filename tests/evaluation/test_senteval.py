"""Transfer tasks: the regression reaches the optimum, folds are balanced, files are read as by SentEval."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rows import each_row
from scipy.optimize import minimize

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.corpora.published.sentence_tasks import read_tasks, task_files
from stillhouse.evaluation import senteval
from stillhouse.evaluation.logistic import fit_logistic, path_accuracy, predict_logistic
from stillhouse.evaluation.senteval import SPLIT_C, folded_accuracy, measure_task, stratified_folds


class Letters:
    """Counts of letters."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[text.count(letter) for letter in "abcd"] for text in texts], np.float32)


@each_row("classes", [2, 4])
@each_row("c", [0.25, 8.0])
def test_the_optimum_is_found_from_any_start(classes: int, c: float) -> None:
    draw = np.random.default_rng(classes)
    x, held = draw.normal(size=(300, 6)), draw.normal(size=(500, 6))
    y = (x[:, :classes] + draw.normal(size=(300, classes))).argmax(axis=1)
    expected = minimised(x, y, c)
    predicted = held @ expected[:-1] + expected[-1]
    labels = predicted.argmax(axis=1) if classes > 2 else (predicted[:, 0] > 0).astype(int)
    classifier = fit_logistic(x, y, c)
    assert np.array_equal(predict_logistic(held, classifier), labels)
    assert np.allclose(classifier.coef_, expected[:-1].T, atol=1e-3)
    cold = [(predict_logistic(held, fit_logistic(x, y, each)) == labels).mean() for each in (100 * c, c)]
    warm = path_accuracy(x, y, held, labels, (100 * c, c))
    assert np.allclose(warm, cold, atol=2 / len(held)) and warm[-1] > 0.995


def minimised(x: FloatArray, y: IntArray, c: float) -> FloatArray:
    """Return weights (D + 1, K) that minimise C Σ loss + ½ ‖W‖²; the intercepts are last."""
    classes = int(y.max()) + 1
    shape = (x.shape[1] + 1, classes if classes > 2 else 1)

    def objective(flat: Any) -> float:
        weights = flat.reshape(shape)
        z = x @ weights[:-1] + weights[-1]
        z = z if classes > 2 else np.concatenate([np.zeros_like(z), z], axis=1)
        losses = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]
        return float(c * losses.sum() + (weights[:-1] ** 2).sum() / 2) / len(y)

    options: Any = {"maxiter": 5000, "maxfun": 10**6, "ftol": 1e-14, "gtol": 1e-8}
    found = minimize(objective, np.zeros(shape[0] * shape[1]), method="L-BFGS-B", options=options)
    return np.asarray(found.x).reshape(shape)


def test_a_fit_needs_a_penalty_and_two_classes() -> None:
    with pytest.raises(BadInput, match="c > 0"):
        fit_logistic(np.eye(4), np.array([0, 1, 0, 1]), 0.0)
    with pytest.raises(BadInput, match="classes >= 2"):
        fit_logistic(np.eye(2), np.array([1, 1]), 1.0)


def test_folds_are_even_in_every_class() -> None:
    labels = np.array([0] * 47 + [1] * 23)
    fold = stratified_folds(labels)
    assert {int(size) for size in np.bincount(fold)} == {7}
    for label in (0, 1):
        sizes = np.bincount(fold[labels == label], minlength=10)
        assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(fold, stratified_folds(labels))
    assert {int(size) for size in np.bincount(stratified_folds(np.arange(30) % 6))} == {3}
    with pytest.raises(BadInput, match="rows >= folds"):
        stratified_folds(np.arange(9) % 2)


def write_tasks(root: Path) -> None:
    draw = np.random.default_rng(0)

    def text(letter: str) -> str:
        return letter * int(draw.integers(1, 4)) + "".join(draw.choice(list("cd"), 3))

    for name in ("MR", "SST/binary", "TREC", "MRPC"):
        (root / "transfer" / name).mkdir(parents=True)
    folder = root / "transfer"
    for kind, letter in (("neg", "a"), ("pos", "b")):
        lines = "".join(text(letter) + " \n" for _ in range(30))
        (folder / f"MR/rt-polarity.{kind}").write_text(lines + "th\xe9 " + letter, encoding="latin-1")
    for split in ("train", "dev", "test"):
        rows = "".join(f"{text('ab'[at % 2])} \t{at % 2}\n" for at in range(20))
        (folder / f"SST/binary/sentiment-{split}").write_text(rows)
    rows = "".join(f"{'XYZ'[at % 3]}:fine {text('abc'[at % 3])} ?\n" for at in range(36))
    (folder / "TREC/train_5500.label").write_text(rows)
    for split in ("train", "test"):
        pairs = (f"{at % 2}\t1\t2\t{'ab' * 3}\t{('ab' if at % 2 else 'cd') * 3}" for at in range(30))
        (folder / f"MRPC/msr_paraphrase_{split}.txt").write_text(
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "\r\n".join(pairs) + "\r\n"
        )


def test_the_protocol_on_separable_tasks(tmp_path: Path) -> None:
    write_tasks(tmp_path)
    found = {}
    for task in ("MR", "SST-2", "TREC", "MRPC"):
        for final in (False, True):
            files = task_files(str(tmp_path), task, final=final)
            if files is not None:
                found[task, final], _ = measure_task(task, read_tasks(task, files), Letters())
    assert ("TREC", True) not in found, "its test file is not there"
    assert found["MR", False] == {"accuracy": 100, "dev_accuracy": 100}
    assert found["SST-2", False] == {"dev_accuracy": 100}
    assert found["SST-2", True] == {"accuracy": 100, "dev_accuracy": 100}
    assert list(found["TREC", False]) == ["dev_accuracy"] and found["TREC", False]["dev_accuracy"] > 60
    assert found["MRPC", True] == {"accuracy": 100, "dev_accuracy": 100, "f1": 100}


def test_file_contents_are_read_unchanged(tmp_path: Path) -> None:
    write_tasks(tmp_path)
    files = task_files(str(tmp_path), "MR", final=False)
    assert files is not None
    mr = read_tasks("MR", files)["all"]
    assert len(mr.sides[0]) == 62 and "th\xe9 a" in mr.sides[0] and list(np.bincount(mr.labels_N)) == [31, 31]
    files = task_files(str(tmp_path), "MRPC", final=True)
    assert files is not None
    assert read_tasks("MRPC", files)["train"].sides[1][0] == "cdcdcd"
    with (tmp_path / "transfer/SST/binary/sentiment-dev").open("a") as file:
        file.write("no label\n")
    files = task_files(str(tmp_path), "SST-2", final=False)
    assert files is not None and "test" not in files
    with pytest.raises(BadInput, match="sentiment-dev, line 21"):
        read_tasks("SST-2", files)


def test_the_fast_setting_takes_five_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stillhouse.evaluation import senteval

    write_tasks(tmp_path)
    dealt: list[int] = []

    def counted(labels_N: IntArray, folds: int) -> IntArray:
        dealt.append(folds)
        return stratified_folds(labels_N, folds)

    monkeypatch.setattr(senteval, "stratified_folds", counted)
    for task in ("MR", "TREC"):
        files = task_files(str(tmp_path), task, final=False)
        assert files is not None
        measure_task(task, read_tasks(task, files), Letters(), senteval.FAST_FOLDS)
    assert dealt == [5] * (1 + 5 + 1)


def test_nested_folds_are_measured_on_rows_that_were_held_out() -> None:
    """80 features of 60 rows fit labels drawn at random; they tell nothing about other rows."""
    rng = np.random.default_rng(0)
    _, correct = folded_accuracy(rng.standard_normal((60, 80)), rng.integers(0, 2, 60), folds=3)
    assert sum(map(len, correct)) == 60 and np.concatenate(correct).mean() < 0.8


def test_the_c_of_the_best_dev_figure_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    splits: Any = {name: SimpleNamespace(labels_N=np.array([0, 1])) for name in ("train", "dev", "test")}
    figures_C = np.array([0.9 if at == 2 else 0.1 * at for at in range(len(SPLIT_C))])
    given: list[float] = []
    monkeypatch.setattr(senteval, "features", lambda data, model: np.eye(2))
    monkeypatch.setattr(senteval, "path_accuracy", lambda *arguments: figures_C)
    monkeypatch.setattr(senteval, "fit_logistic", lambda x, y, c: given.append(c))
    monkeypatch.setattr(senteval, "predict_logistic", lambda x, classifier: np.array([0, 1]))
    figures, _ = measure_task("MR", splits, Letters())
    assert given == [SPLIT_C[2]] and figures["dev_accuracy"] == pytest.approx(90)
