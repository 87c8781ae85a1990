"""The loss on held-out texts: what it is computed from, and that it changes nothing else."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.distributed import alone, gather, rank, world_size
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import open_texts
from stillhouse.evaluation.metrics import cosines
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.selection import Selection
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.search.trial import Context
from stillhouse.students.head import require_model
from stillhouse.teachers.store import open_store
from stillhouse.training.held_out import HELDOUT_LOSS, held_out_tokens
from stillhouse.training.models import encoder_in
from stillhouse.training.table import student_reader
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Store
from stillhouse.values.stage import Stage

WHERE = Where(device="cpu", threads=1)
VALUES = {
    "sra": {"hidden": 8, "distil_batch_size": 6, "finetune_batch_size": 16},
    "ckd": {"bank_size": 32, "batch_size": 16},
    "pkd": {"batch_size": 16},
}


def held_out_of(context: Context) -> Store:
    store: Store = context.setting.dev.evaluators[0].kwargs["store"]
    return store


def plan(name: str, context: Context, *, reported: bool) -> Stage:
    method = load_method(name)
    dev = dataclasses.replace(context.setting.dev, held_out=held_out_of(context) if reported else None)
    return method.plan(
        hyper_parameters(method, VALUES[name], "paper"), dataclasses.replace(context.setting, dev=dev)
    )


def test_sra_reports_equation_1_on_the_held_out_sentences(context: Context) -> None:
    workspace, stage = Workspace(Path(context.root)), plan("sra", context, reported=True)
    run(stage, workspace, where=WHERE)
    first, last = stage.chain()
    folder, store = workspace.path(first), held_out_of(context)
    vectors = open_store(workspace, store)
    texts = open_texts(workspace, store.texts)[vectors.rows]
    assert len(texts) == 13
    student = encoder_in(folder, "cpu").encode(texts)
    # Two whole batches of 6 texts; the last text would be a smaller one.
    distances = 0.5 * (1 - cosines(student, vectors.gather(vectors.rows)))[:12]
    manifest = read_manifest(folder)
    assert manifest["metrics"][HELDOUT_LOSS] == pytest.approx(distances.mean(), abs=1e-5)
    assert [HELDOUT_LOSS in point["metrics"] for point in manifest["evaluations"]] == [True, True]
    losses = [point["metrics"][HELDOUT_LOSS] for point in manifest["evaluations"]]
    assert losses[1] != losses[0]
    assert HELDOUT_LOSS not in read_manifest(workspace.path(last))["metrics"], (
        "a labelled task has no teacher"
    )


@pytest.mark.parametrize("name", ["ckd", "pkd"])
def test_training_is_the_same_with_and_without_it(name: str, context: Context) -> None:
    workspace, weights = Workspace(Path(context.root)), []
    for reported in (True, False):
        first = next(iter(plan(name, context, reported=reported).chain()))
        folder = run(first, workspace, where=WHERE)
        metrics = read_manifest(folder)["metrics"]
        assert (HELDOUT_LOSS in metrics) == reported and np.isfinite(metrics.get(HELDOUT_LOSS, 0.0))
        weights.append(
            {**load_file(folder / "student.safetensors"), **load_file(folder / "objective.safetensors")}
        )
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_only_stages_that_follow_single_texts_have_held_out_tokens(context: Context) -> None:
    teacher = require_model(context.setting.teacher)
    first, last = plan("sra", context, reported=True).chain()
    tokens = held_out_tokens(first, student_reader(first, teacher))
    assert tokens is not None and tokens.texts == held_out_of(context).texts
    assert tokens.max_length == first.max_length
    assert held_out_tokens(last, student_reader(last, teacher)) is None
    (silent, *_) = plan("sra", context, reported=False).chain()
    assert held_out_tokens(silent, student_reader(silent, teacher)) is None
    assert silent.fingerprint != first.fingerprint


def test_the_option_names_the_dev_sentences(experiment: Experiment, workspace: Workspace) -> None:
    asked = changed(experiment, {"selection.heldout_loss": True})
    suite = prepare(asked, workspace, Embedding(local=True)).setting.dev
    assert suite.held_out == suite.evaluators[0].kwargs["store"]
    with pytest.raises(BadInput, match="heldout_loss needs sentences"):
        Experiment(data=(Claims("folder"),), selection=Selection(heldout_loss=True))


def test_alone_a_rank_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    rows = torch.ones(3)
    with alone():
        assert world_size() == 1 and rank() == 0 and gather(rows) is rows
        with alone():
            pass
        assert world_size() == 1
    assert world_size() == 2 and rank() == 1
