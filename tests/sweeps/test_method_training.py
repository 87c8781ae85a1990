"""Every method on real files: train, stop, resume bit for bit, export, and beat its untrained student."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.corpora.tables import open_texts
from stillhouse.evaluation.agreement import Agreement
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods import hyper_parameters, known_methods, load_method
from stillhouse.search.trial import Context
from stillhouse.students.static import StaticStudent
from stillhouse.sweeps.stage_export import export_stage
from stillhouse.teachers.store import open_vectors
from stillhouse.training.models import encoder_in
from stillhouse.training.progress import Stopped
from stillhouse.training.start_figures import untrained
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

BATCH = 16
SMALL: dict[str, dict[str, Any]] = {
    "ibkd": {"distil_batch_size": BATCH},
    "ckd": {"bank_size": 32},
    "crd": {"bank_size": 32},
    "hpd": {"dim": 8},
    "crosslingual": {"unit": 2, "bottleneck": 8},
    "retrieval_kd": {"units": 4, "teacher_units": 4, "teacher_batch_size": BATCH},
    "sra": {"hidden": 8, "distil_batch_size": BATCH, "finetune_batch_size": BATCH},
    "sra_kd": {"hidden": 8, "distil_batch_size": BATCH, "finetune_batch_size": BATCH},
    "bilstm_kd": {"hidden": 8},
    "rerank_kd": {"teacher_batch_size": BATCH},
}
WHERE = Where(device="cpu", threads=1)
OTHERS = ("simcse", "metakd", "crosslingual", "bilstm_kd", "sra_kd", "retrieval_kd", "rerank_kd")
FOLLOWS = [name for name in known_methods() if name not in OTHERS]
"""Methods that learn from the teacher's vectors of the sentences; the first stage of `sra_kd` is `sra`'s."""


def plan(name: str, context: Context, changes: dict[str, Any] | None = None, preset: str = "paper") -> Stage:
    method = load_method(name)
    field_names = {field.name for field in dataclasses.fields(method.HyperParameters)}
    small = {key: value for key, value in {"batch_size": BATCH}.items() if key in field_names}
    values = {**small, **SMALL.get(name, {}), **(changes or {})}
    return method.plan(hyper_parameters(method, values, preset), context.setting)


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        pytest.param(name, preset, marks=[] if preset == "paper" else [pytest.mark.long])
        for name in known_methods()
        for preset, values in load_method(name).PRESETS.items()
        if preset == "paper" or values != load_method(name).PRESETS["paper"]
    ],
)
def test_it_resumes_bit_for_bit_and_is_exported(
    name: str, preset: str, context: Context, tmp_path: Path
) -> None:
    folder = check_resumes(plan(name, context, preset=preset), Workspace(Path(context.root)), tmp_path)
    if preset == "paper":
        assert export_stage(folder, tmp_path / "export").parity > 0.9999


def check_resumes(stage: Stage, workspace: Workspace, aside: Path) -> Path:
    """Check that a stopped and continued stage has the weights of one that is not; return its folder."""
    with pytest.raises(Stopped):
        run(stage, workspace, where=WHERE, on_evaluation=lambda evaluation: True)
    folder = run(stage, workspace, where=WHERE)
    stopped = read_manifest(folder)["weights_sha256"]
    for part in stage.chain():
        workspace.path(part).rename(aside / part.label)
    folder = run(stage, workspace, where=WHERE)
    assert read_manifest(folder)["weights_sha256"] == stopped
    return folder


@pytest.mark.parametrize("name", ["mse", pytest.param("ckd", marks=pytest.mark.long), "leaf"])
def test_a_kept_map_resumes_and_is_the_last_layer_of_the_export(
    name: str, context: Context, tmp_path: Path
) -> None:
    """A student of half the width ends up in the teacher's space, for stock sentence-transformers too."""
    teacher = context.setting.teacher_dim
    narrow = spec(StaticStudent, base=context.setting.teacher, dim=teacher // 2, normalize=False)
    setting = dataclasses.replace(context.setting, student=narrow)
    changes = {} if name == "leaf" else {"keep_projection": True}
    stage = plan(name, dataclasses.replace(context, setting=setting), changes)
    folder = check_resumes(stage, Workspace(Path(context.root)), tmp_path)
    assert export_stage(folder, tmp_path / "export").parity > 0.9999
    model: Any = SentenceTransformer(str(tmp_path / "export"), device="cpu")
    assert [type(module).__name__ for module in model] == ["StaticEmbedding", "Dense"]
    assert model[1].linear.weight.shape == (teacher, teacher // 2) and model[1].linear.bias is None
    assert np.asarray(model.encode(["a text"])).shape == (1, teacher)


def test_a_kept_map_starts_as_the_least_squares_map(context: Context) -> None:
    narrow = spec(StaticStudent, base=context.setting.teacher, dim=context.setting.teacher_dim // 2)
    near: list[float] = []
    workspace = Workspace(Path(context.root))
    for texts in (0, 200):
        setting = dataclasses.replace(context.setting, student=narrow, least_squares=texts)
        stage = plan("leaf", dataclasses.replace(context, setting=setting))
        run(stage, workspace, where=WHERE)
        store = setting[Sentences].store
        rows = np.arange(60)
        ours_NE = untrained(stage, workspace, "cpu").encode(list(open_texts(workspace, store.texts)[rows]))
        theirs_NE = open_vectors(workspace, store).gather(rows)
        norms = np.linalg.norm(ours_NE, axis=1) * np.linalg.norm(theirs_NE, axis=1)
        near.append(float(((ours_NE * theirs_NE).sum(axis=1) / norms).mean()))
        assert (read_manifest(workspace.path(stage))["start"] == {}) == (not stage.dev)
    assert near[1] > near[0] + 0.3
    with pytest.raises(BadInput, match="least_squares > "):
        run(dataclasses.replace(stage, least_squares=4), workspace, where=WHERE)


def check_gain(
    name: str,
    context: Context,
    values: dict[str, Any],
    figure: Callable[..., tuple[float, float]],
    **changes: Any,
) -> None:
    """Check that training a randomly initialised student gains more than the spread over three seeds."""
    workspace, gains, changes = Workspace(Path(context.root)), [], {"evaluations": 1, **changes}
    for seed in range(3):
        student = context.setting.student.replace(pretrained=False, seed=seed)
        setting = dataclasses.replace(context.setting, student=student, seed=seed, **changes)
        stage = plan(name, dataclasses.replace(context, setting=setting), values)
        before, after = figure(stage, setting, workspace)
        gains.append(after - before)
    assert np.mean(gains) > np.std(gains, ddof=1) and min(gains) > 0, gains


def agreement(stage: Stage, setting: Setting, workspace: Workspace) -> tuple[float, float]:
    """Return agreement with the teacher on the sentences, before and after training."""
    folder = run(stage, workspace, where=WHERE)
    before, after = (
        Agreement(setting[Sentences].store, workspace, pairs=150)(encoder)["agreement_spearman_cosine"]
        for encoder in (untrained(stage, workspace, "cpu"), encoder_in(folder))
    )
    return before, after


@pytest.mark.parametrize("name", FOLLOWS)
def test_training_brings_the_student_closer_to_the_teacher(name: str, shared_context: Context) -> None:
    rate = "distil_learning_rate" if name in ("ibkd", "sra") else "learning_rate"
    bare = dataclasses.replace(shared_context, setting=shared_context.setting.having(Pairs, None))
    budget = 320 if name == "sra" else 160
    check_gain(name, bare, {rate: 3e-3}, agreement, finetune_budget=0, distil_budget=budget)


def pairs_found(stage: Stage, setting: Setting, workspace: Workspace) -> tuple[float, float]:
    """Return the share of passages that are no nearer than a query's own, before and after training."""
    assert setting[Pairs].examples is not None
    tables = [setting[Pairs].examples.columns[column] for column in ("query", "passage")]
    texts = [list(open_texts(workspace, table)[np.arange(40)]) for table in tables]
    shares = []
    for encoder in (untrained(stage, workspace, "cpu"), encoder_in(run(stage, workspace, where=WHERE))):
        query_ND, passage_ND = (np.asarray(encoder.encode(side)) for side in texts)
        passage_ND /= np.linalg.norm(passage_ND, axis=1, keepdims=True)
        cosines_NN = query_ND @ passage_ND.T
        shares.append(float((cosines_NN <= cosines_NN.diagonal()[:, None]).mean()))
    return shares[0], shares[1]


def nearness_to_the_head(stage: Stage, setting: Setting, workspace: Workspace) -> tuple[float, float]:
    """Return how close the queries' vectors come in the first stage to those of the trained head."""
    stage = next(stage.chain())
    folder = run(stage, workspace, where=WHERE)
    store = setting[Pairs].stores["query"]
    head_EE = load_file(folder / "objective.safetensors")["head.weight"].numpy()
    texts = list(open_texts(workspace, store.texts)[np.arange(40)])
    targets_NE = open_vectors(workspace, store).gather(np.arange(40)) @ head_EE.T
    before, after = (
        -float(np.linalg.norm(encoder.encode(texts) - targets_NE, axis=1).mean())
        for encoder in (untrained(stage, workspace, "cpu"), encoder_in(folder))
    )
    return before, after


def dev_figure(stage: Stage, setting: Setting, workspace: Workspace) -> tuple[float, float]:
    """Return the figure of a stage with a single step and of the whole stage."""
    figures = []
    for part in (dataclasses.replace(stage, budget=stage.batch_size), stage):
        assert part.dev is not None
        metrics = read_manifest(run(part, workspace, where=WHERE))["metrics"]
        figures.append(float(metrics[part.dev.select]))
    return figures[0], figures[1]


@pytest.mark.parametrize(
    ("name", "steps", "figure", "values"),
    [
        ("simcse", 20, pairs_found, {"learning_rate": 1e-3}),
        ("crosslingual", 15, pairs_found, {"learning_rate": 2e-3, "bottleneck": 0}),
        ("metakd", 10, nearness_to_the_head, {"learning_rate": 1e-3}),
        ("bilstm_kd", 40, dev_figure, {"learning_rate": 1e-2, "teacher_budget": 640, "kd_weight": 0.5}),
        ("sra_kd", 40, dev_figure, {"finetune_learning_rate": 1e-2, "teacher_budget": 640, "kd_weight": 0.5}),
        (
            "rerank_kd",
            20,
            pairs_found,
            {"learning_rate": 1e-3, "teacher_budget": 160, "loss": "contrastive_kl", "scale": 5.0},
        ),
        ("retrieval_kd", 10, dev_figure, {"learning_rate": 0.02, "train_words": True, "units": 16}),
    ],
)
def test_training_improves_the_task(
    name: str,
    steps: int,
    figure: Callable[..., tuple[float, float]],
    values: dict[str, Any],
    shared_context: Context,
) -> None:
    assert name in OTHERS
    budget = BATCH * steps
    check_gain(name, shared_context, values, figure, distil_budget=budget, finetune_budget=budget)
