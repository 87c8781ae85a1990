"""Logits of a fine-tuned teacher's head, recorded once and read by a student's stage."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from local_ray import local_ray
from stand_ins import equal_or_not  # type: ignore[import-not-found]

from stillhouse.cluster.ray_data import ModelPool
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.devices import has_device
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.corpora.tables import open_rows, open_values
from stillhouse.losses.heads import ClassificationHead
from stillhouse.objectives.classified import Classified
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.weights import resolve_model
from stillhouse.training import recording
from stillhouse.training.models import encoder_in
from stillhouse.training.recording import build_recorded
from stillhouse.training.scorer import StudentScorer
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Examples, Recorded, Sampled
from stillhouse.values.stage import Optimizer, Stage

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = ["cat", "river", "sun", "house", "red", "list"]
WHERE = Where(device="cpu", threads=1)


@pytest.fixture
def teacher(workspace: Workspace, tiny_model: Path) -> Stage:
    rows = equal_or_not(workspace, WORDS)
    return Stage(
        label="teacher",
        student=spec(TransformerStudent, base=resolve_model(str(tiny_model)), layers=(0,)),
        objective=spec(Classified, head=spec(ClassificationHead, classes=2, pair=True)),
        examples=rows,
        stores={},
        budget=36,
        batch_size=18,
        optimizer=Optimizer(1e-3),
        max_length=8,
    )


def recorded(teacher: Stage, rows: Examples | None = None) -> Examples:
    rows = rows or teacher.examples
    return Examples(rows.columns, Recorded(rows, teacher), label="recorded", values=(*rows.values, "logits"))


def test_a_students_stage_trains_its_teacher_first_and_reads_its_logits(
    workspace: Workspace, teacher: Stage
) -> None:
    half = Examples(teacher.examples.columns, Sampled(teacher.examples, 0.5), values=teacher.examples.values)
    examples = recorded(teacher, half)
    student = dataclasses.replace(teacher, label="kd", examples=examples, seed=1, batch_size=9, budget=18)
    assert list(student.chain()) == [teacher, student]
    run(student, workspace, where=WHERE)
    rows, values = open_rows(workspace, examples), open_values(workspace, examples)
    scorer = encoder_in(workspace.path(teacher))
    assert isinstance(scorer, StudentScorer)
    texts = [[f"the {WORDS[row]}" for row in rows[name]] for name in ("text", "other")]
    np.testing.assert_allclose(values["logits"], scorer.logits(*texts), atol=1e-6)
    assert values["logits"].shape == (18, 2) and values["logits"].dtype == np.float32
    assert np.array_equal(values["label"], rows["text"] == rows["other"])
    other = dataclasses.replace(teacher, seed=5)
    assert recorded(other).fingerprint != recorded(teacher).fingerprint != examples.fingerprint


def test_a_killed_recording_resumes_and_repeats_no_rows(
    workspace: Workspace, teacher: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "ROWS_AT_ONCE", 10)
    run(teacher, workspace, where=WHERE)
    examples, logits = recorded(teacher), StudentScorer.logits
    calls: list[int] = []

    def until_killed(self: StudentScorer, *sides: list[str]) -> object:
        calls.append(len(sides[0]))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return logits(self, *sides)

    monkeypatch.setattr(StudentScorer, "logits", until_killed)
    with pytest.raises(KeyboardInterrupt):
        build_recorded(workspace, examples)
    assert not workspace.finished(examples)
    build_recorded(workspace, examples)
    assert calls == [10, 10, 10, 10, 6]
    build_recorded(workspace, examples)
    folder = workspace.path(examples)
    assert len(calls) == 5 and not (folder / "parts").exists() and read_manifest(folder)["rows"] == 36
    monkeypatch.undo()
    again = recorded(dataclasses.replace(teacher, label="teacher"))
    assert again.fingerprint == examples.fingerprint


@pytest.mark.ray
def test_a_pool_records_the_same_with_devices_of_its_own(
    workspace: Workspace, teacher: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "ROWS_AT_ONCE", 10)
    run(teacher, workspace, where=WHERE)
    examples = recorded(teacher)
    build_recorded(workspace, examples)
    expected = np.array(open_values(workspace, examples)["logits"])
    shutil.rmtree(workspace.path(examples))
    with local_ray(2, gpus=1):
        if not has_device("cuda"):  # A process of the pool has reserved Ray's GPU, which is not there.
            with pytest.raises(BadInput, match="a node must offer GPUs that torch can use"):
                build_recorded(workspace, examples, pool=ModelPool(2, "cuda", 1))
        build_recorded(workspace, examples, pool=ModelPool(2, "cpu", 1))
    np.testing.assert_allclose(open_values(workspace, examples)["logits"], expected, atol=1e-6)
