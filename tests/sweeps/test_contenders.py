"""The models of a sweep's comparison, each as it reads texts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import Workspace
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import mse
from stillhouse.search.trial import Context
from stillhouse.sweeps.contenders import Candidate, Contenders, figures_of
from stillhouse.sweeps.deliver import _teacher_dev
from stillhouse.sweeps.room import Room
from stillhouse.training.walk import run
from stillhouse.training.where import Where

WHERE = Where(device="cpu", threads=1)
LONG = ["the cat and the dog sat on the mat in the house by the river", "a dog sat"]


def contenders_of(prepared: Prepared, workspace: Workspace) -> Contenders:
    stage = mse.plan(mse.HyperParameters(batch_size=16), prepared.setting)
    record: Any = None
    best = Candidate(record, stage, run(stage, workspace, where=WHERE))
    return Contenders(best, None, prepared, "cpu")


def test_each_model_reads_as_many_tokens_as_it_does_elsewhere(
    experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    """The teacher's figures are those of its own maximum length, the student's of its own."""
    given = changed(experiment, {"max_length": 0, "teacher.max_length": 14, "student.max_length": 6})
    prepared = prepare(given, workspace, Embedding(local=True))
    contenders = contenders_of(prepared, workspace)
    models = {who: encoder for who, (encoder, _) in contenders.encoders(workspace).items()}
    stock: Any = SentenceTransformer(given.teacher.name, device="cpu")
    cut = {}
    for length in (6, 14):
        stock.max_seq_length = length
        cut[length] = stock.encode(LONG)
    assert np.abs(cut[6][0] - cut[14][0]).max() > 1e-3, "the first text is longer than the student reads"
    np.testing.assert_allclose(models["teacher"].encode(LONG), cut[14], atol=1e-5)
    first = LONG[0].split()
    for who, length in (("teacher", 14), ("student", 6)):
        kept = " ".join(first[: length - 2])
        same = models[who].encode([LONG[0], kept, " ".join(first[: length - 3])])
        np.testing.assert_allclose(same[0], same[1], atol=1e-6)
        assert np.abs(same[0] - same[2]).max() > 1e-3, who

    context = Context("mse", "paper", prepared.setting, str(workspace.root), WHERE, "")
    dev = _teacher_dev(prepared, context, tmp_path, None, Room(workspace, Need(), prepared.setting))
    assert dev == figures_of(prepared.setting.dev, models["teacher"], workspace)[0]


def test_results_are_kept_apart_by_the_teachers_length(experiment: Experiment, workspace: Workspace) -> None:
    prepared = prepare(experiment, workspace, Embedding(local=True))
    same = contenders_of(prepared, workspace)
    reading = prepared.setting.teacher_reading
    assert reading is not None and reading.max_length == prepared.setting.max_length
    longer = replace(prepared.setting, teacher_reading=replace(reading, max_length=20))
    unread = replace(prepared.setting, teacher_reading=None)
    found = [
        replace(same, prepared=replace(prepared, setting=setting)).fingerprint for setting in (unread, longer)
    ]
    assert found[0] == same.fingerprint != found[1]
