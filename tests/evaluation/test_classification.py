"""Accuracy and F1 against scikit-learn, thresholds against exhaustive search, evaluators against tables."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from rows import each_row
from torch import Tensor

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.corpora.published.glue import LabelledData, resolve_task
from stillhouse.evaluation.classification import (
    Classification,
    CosineThreshold,
    accuracy,
    best_threshold,
    f1,
)
from stillhouse.losses.heads import ClassificationHead


class Toy:
    """Texts are angles in degrees."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.encoded += texts
        angles = np.deg2rad([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class HeadScorer:
    """An encoder and a classification head."""

    def __init__(self, encoder: Toy, head: Callable[..., Tensor]) -> None:
        self.encoder, self.head = encoder, head

    @torch.no_grad()
    def score(self, first: Sequence[str], second: Sequence[str] | None = None) -> FloatArray:
        sides = [first] if second is None else [first, second]
        texts = sorted({text for side in sides for text in side})
        vectors_ND = dict(zip(texts, self.encoder.encode(texts), strict=True))
        given = [torch.from_numpy(np.stack([vectors_ND[text] for text in side])) for side in sides]
        return self.head(*given).float().numpy()


def pairs(folder: Path, split: str, rows: Sequence[tuple[float, int]], task: str = "qqp") -> LabelledData:
    names = {"qqp": "question1\tquestion2\tis_duplicate", "rte": "sentence1\tsentence2\tlabel"}[task]
    labels = {"qqp": ("0", "1"), "rte": ("entailment", "not_entailment")}[task]
    lines = [f"0\t{angle}\t{labels[label]}" for angle, label in rows]
    (folder / f"{split}.tsv").write_text("\n".join([names, *lines]) + "\n")
    return resolve_task(task, folder, split)


@each_row("seed", range(5))
def test_figures_equal_scikit_learn(seed: int) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    random = np.random.default_rng(seed)
    labels, predicted = random.integers(0, 2, 50), random.integers(0, 2, 50)
    assert accuracy(predicted, labels) == pytest.approx(accuracy_score(labels, predicted), rel=1e-12)
    assert f1(predicted, labels) == pytest.approx(f1_score(labels, predicted), rel=1e-12)
    three = random.integers(0, 3, 50)
    assert accuracy(three, labels) == pytest.approx(accuracy_score(labels, three), rel=1e-12)
    nothing = np.zeros(5, np.int64)
    assert f1(nothing, nothing) == f1_score(nothing, nothing, zero_division=0) == 0


@each_row("measure", ["accuracy", "f1"])
@each_row("seed", range(6))
def test_the_chosen_threshold_is_optimal(seed: int, measure: str) -> None:
    random = np.random.default_rng(seed)
    cosines = random.integers(-5, 6, 30) / 5  # many ties
    labels = (cosines + random.normal(0, 0.6, 30) > 0.2).astype(np.int64)
    figure = {"accuracy": accuracy, "f1": f1}[measure]

    def at(threshold: float) -> float:
        return figure((cosines >= threshold).astype(np.int64), labels)

    every = [at(threshold) for threshold in (*np.unique(cosines), 2.0)]
    assert at(best_threshold(cosines, labels, measure)) == pytest.approx(max(every), rel=1e-12)


def test_thresholds_at_the_edges() -> None:
    assert best_threshold(np.array([0.9, 0.1]), np.array([1, 0])) == pytest.approx(0.5)
    assert best_threshold(np.array([0.9, 0.1]), np.array([0, 0])) > 0.9
    assert best_threshold(np.array([0.9, 0.1]), np.array([1, 1])) < 0.1
    near = np.array([np.nextafter(0.5, 1), 0.5])
    assert ((near >= best_threshold(near, np.array([1, 0]))) == [True, False]).all()
    with pytest.raises(BadInput, match="rows"):
        best_threshold(np.array([]), np.array([], np.int64))


def test_untuned_vectors_use_a_threshold_chosen_on_other_data(tmp_path: Path) -> None:
    fit = pairs(tmp_path, "train", [(10, 1), (20, 1), (50, 0), (70, 0)])
    data = pairs(tmp_path, "dev", [(5, 1), (30, 0), (40, 1), (60, 0), (36, 0)])
    model = Toy()
    found = CosineThreshold(data, fit)(model)
    middle = (np.cos(np.deg2rad(20)) + np.cos(np.deg2rad(50))) / 2  # 38 degrees
    assert found["qqp_cosine_accuracy_threshold"] == pytest.approx(middle, abs=1e-6)
    assert found["qqp_cosine_accuracy"] == pytest.approx(2 / 5)
    assert found["qqp_cosine_f1"] == pytest.approx(2 / 5)  # 1 hit, 3 predicted, 2 actual
    assert len(model.encoded) == 5 + 6, "every text of a split is encoded once"


def test_only_figures_of_other_splits_than_test_may_select(tmp_path: Path) -> None:
    for file, split in (("dev.tsv", "dev"), ("test.tsv", "test"), ("train.tsv", "train")):
        (tmp_path / file).write_text("sentence\tlabel\na\t1\nb\t0\n")
        evaluator = Classification(resolve_task("sst2", tmp_path, split))
        assert evaluator.split == ("test" if split == "test" else "dev")


def test_a_high_cosine_predicts_entailment(tmp_path: Path) -> None:
    fit = pairs(tmp_path, "train", [(10, 0), (80, 1)], "rte")
    data = pairs(tmp_path, "dev", [(5, 0), (70, 1)], "rte")
    assert CosineThreshold(data, fit, name="x")(Toy())["x_cosine_accuracy"] == 1


def test_thresholds_are_not_chosen_on_the_data_they_score(tmp_path: Path) -> None:
    data = pairs(tmp_path, "dev", [(5, 1), (70, 0)])
    with pytest.raises(BadInput, match="other rows"):
        CosineThreshold(data, data)
    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "dev.tsv").write_text("sentence\tlabel\na\t1\n")
    with pytest.raises(BadInput, match="two classes"):
        CosineThreshold(data, resolve_task("sst2", tmp_path / "single", "dev"))


def test_a_head_scores_pairs(tmp_path: Path) -> None:
    data = pairs(tmp_path, "dev", [(5, 1), (90, 0), (5, 0)])
    evaluator = Classification(data)

    def head(first_BD: Tensor, second_BD: Tensor) -> Tensor:
        cosine_B = (first_BD * second_BD).sum(dim=1)
        return torch.stack([1 - cosine_B, cosine_B], dim=1)

    model = Toy()
    assert evaluator(HeadScorer(model, head)) == {
        "qqp_accuracy": pytest.approx(2 / 3),
        "qqp_f1": pytest.approx(2 / 3),
    }
    assert sorted(model.encoded) == ["0", "5", "90"]
    assert evaluator.split == "dev"


def test_a_head_scores_single_texts_of_many_classes(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n10\t1\n80\t0\n")
    scorer = HeadScorer(Toy(), ClassificationHead(student_dim=2, classes=2, pair=False).score)
    found = Classification(resolve_task("sst2", tmp_path, "dev"), name="x")(scorer)
    assert set(found) == {"x_accuracy", "x_f1"}
    three = HeadScorer(Toy(), ClassificationHead(student_dim=2, classes=3, pair=False).score)
    with pytest.raises(BadInput, match="class"):
        Classification(resolve_task("sst2", tmp_path, "dev"))(three)
    (tmp_path / "dev_matched.tsv").write_text("sentence1\tsentence2\tgold_label\n1\t2\tneutral\n")
    pair = HeadScorer(Toy(), ClassificationHead(student_dim=2, classes=3, pair=True).score)
    assert set(Classification(resolve_task("mnli", tmp_path, "dev_matched"))(pair)) == {"mnli_accuracy"}
