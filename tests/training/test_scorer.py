"""Labels reach an objective, its scores steer training, and a finished stage reproduces its scores."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from stand_ins import equal_or_not  # type: ignore[import-not-found]
from torch import Tensor

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Batch, Encoding, Terms
from stillhouse.corpora.published.glue import resolve_task
from stillhouse.evaluation.classification import Classification
from stillhouse.evaluation.suites import run_suite
from stillhouse.losses.heads import ClassificationHead, cross_entropy
from stillhouse.objectives.objective import Objective
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import encoder_in
from stillhouse.training.scorer import StudentScorer
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Model
from stillhouse.values.stage import DevSuite, Optimizer, Stage, TestSuite

pytestmark = pytest.mark.usefixtures("one_thread")


class Head(Objective):
    """A head over pairs with dropout, which must be off while scoring."""

    def __init__(self, student_dim: int, classes: int = 2) -> None:
        super().__init__()
        self.head = ClassificationHead(student_dim=student_dim, classes=classes, pair=True, dropout=0.5)

    def forward(
        self, student: Mapping[str, Encoding], teacher: Mapping[str, Encoding], batch: Batch
    ) -> Terms:
        assert not teacher
        return {"labels": cross_entropy(self._logits(student), batch.values["label"])}

    def score(self, student: Mapping[str, Encoding]) -> Tensor:
        return self._logits(student).softmax(dim=-1)

    def _logits(self, student: Mapping[str, Encoding]) -> Tensor:
        logits_BC: Tensor = self.head(student["text"].embedding_BD, student["other"].embedding_BD)
        return logits_BC


@pytest.fixture
def stage(workspace: Workspace, tiny_model: Path, tmp_path: Path) -> Stage:
    teacher: Model = resolve_model(str(tiny_model))
    words = ["cat", "river", "sun", "house", "red", "list"]
    lines = [f"0\tthe {a}\tthe {b}\t{int(a == b)}" for a in words for b in words]
    (tmp_path / "dev.tsv").write_text("\n".join(["id\tquestion1\tquestion2\tis_duplicate", *lines]) + "\n")
    examples = equal_or_not(workspace, words)
    return Stage(
        label="finetune",
        student=spec(TransformerStudent, base=teacher, layers=(0,)),
        objective=spec(Head),
        examples=examples,
        stores={},
        budget=36 * 10,
        batch_size=36,
        optimizer=Optimizer(3e-3),
        max_length=8,
        dev=DevSuite((spec(Classification, data=resolve_task("qqp", tmp_path, "dev")),), "qqp_accuracy"),
        evaluate_every=36 * 5,
    )


def test_scores_select_and_can_be_reproduced(workspace: Workspace, stage: Stage) -> None:
    folder = run(stage, workspace, where=Where(device="cpu", threads=1))
    manifest, scorer = read_manifest(folder), encoder_in(folder)
    assert isinstance(scorer, StudentScorer) and manifest["columns"] == ["text", "other"]
    assert stage.dev is not None and manifest["teacher_dim"] is None
    figures = run_suite(stage.dev, scorer, workspace)
    assert figures == pytest.approx(manifest["metrics"], abs=1e-9) and "qqp_f1" in figures
    a, b = ["the cat", "the sun"], ["the cat", "the list"]
    scores_NC = scorer.score(a, b)
    with torch.no_grad():
        sides = [Encoding(torch.from_numpy(scorer.encode(side))) for side in (a, b)]
        expected = scorer.objective.score({"text": sides[0], "other": sides[1]}).numpy()
    np.testing.assert_allclose(scores_NC, expected, atol=1e-6)
    np.testing.assert_allclose(scores_NC.sum(axis=1), 1, atol=1e-6)
    with pytest.raises(BadInput, match="Texts must be given for every column"):
        scorer.score(a)
    with pytest.raises(BadInput, match="the same length"):
        scorer.score(a, b[:1])


def test_a_test_suite_skips_figures_a_bare_encoder_lacks(workspace: Workspace, stage: Stage) -> None:
    assert stage.dev is not None
    suite = TestSuite(stage.dev.evaluators)

    class Bare:
        def encode(self, texts: object) -> np.ndarray:
            raise AssertionError("nobody asks")

    assert run_suite(suite, Bare(), workspace) == {}
