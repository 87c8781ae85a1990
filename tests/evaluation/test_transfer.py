"""Transfer: the regression is scikit-learn's, folds are even, files are read as SentEval reads them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.corpora.published.sentence_tasks import read_tasks, task_files
from stillhouse.evaluation.logistic import fit_logistic, predict_logistic
from stillhouse.evaluation.transfer import measure_task, stratified_folds


class Letters:
    """Counts of letters."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[text.count(letter) for letter in "abcd"] for text in texts], np.float32)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("c", [0.25, 8.0])
def test_equal_to_scikit_learn(classes: int, c: float) -> None:
    draw = np.random.default_rng(classes)
    x, held = draw.normal(size=(300, 6)), draw.normal(size=(500, 6))
    y = (x[:, :classes] + draw.normal(size=(300, classes))).argmax(axis=1)
    wanted = LogisticRegression(C=c, tol=1e-8, max_iter=5000).fit(x, y)
    weights = fit_logistic(x, y, classes, c)
    assert np.array_equal(predict_logistic(held, weights), wanted.predict(held))
    assert np.allclose(weights[:-1].T, wanted.coef_, atol=1e-3)
    again = fit_logistic(x, y, classes, c, fit_logistic(x, y, classes, 100 * c))
    assert np.allclose(again, weights, atol=1e-3)


def test_folds_are_even_in_every_class() -> None:
    labels = np.array([0] * 47 + [1] * 23)
    fold = stratified_folds(labels)
    assert {int(size) for size in np.bincount(fold)} == {7}
    for label in (0, 1):
        sizes = np.bincount(fold[labels == label], minlength=10)
        assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(fold, stratified_folds(labels))


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


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
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
    from stillhouse.evaluation import transfer

    write_tasks(tmp_path)
    dealt: list[int] = []

    def counted(labels_N: IntArray, folds: int) -> IntArray:
        dealt.append(folds)
        return stratified_folds(labels_N, folds)

    monkeypatch.setattr(transfer, "stratified_folds", counted)
    for task in ("MR", "TREC"):
        files = task_files(str(tmp_path), task, final=False)
        assert files is not None
        measure_task(task, read_tasks(task, files), Letters(), transfer.FAST_FOLDS)
    assert dealt == [5] * (1 + 5 + 1)
