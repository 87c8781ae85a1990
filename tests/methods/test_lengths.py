"""Methods whose losses count each text by itself take batches by length; the others say why not."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from test_contract import SMALL, setting  # type: ignore[import-not-found]

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.corpora.word_vector_files import write_vocabulary
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import hyper_parameters, known_methods, load_method, mse
from stillhouse.students.transformer import TransformerStudent
from stillhouse.sweeps.checks import check_plans
from stillhouse.training.batching import check_batching
from stillhouse.training.walk import run
from stillhouse.training.where import Where

BY_LENGTH = {"mse", "hpd", "leaf", "sra", "sra_kd"}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("words") / "words"
    write_vocabulary((f"word{row}" for row in range(100)), folder, dim=6)
    return str(folder)


@each_row("name", known_methods())
@each_row("ways", [{"batch_tokens": 2048}, {"length_window": 512}])
def test_methods_take_batches_by_length_or_refuse_them(
    name: str, ways: dict[str, int], tiny_model: Path, words: str
) -> None:
    given = setting(str(tiny_model), words)
    base = given.student.kwargs["base"]
    student = spec(TransformerStudent, base=base, layers=(0, 1), dropout=0.0)
    given = dataclasses.replace(given, student=student)
    method = load_method(name)
    hp = hyper_parameters(method, SMALL.get(name, {}))
    plan = method.plan(hp, dataclasses.replace(given, **ways))
    if name not in BY_LENGTH:
        with pytest.raises(BadInput, match=r"batches by length .*must (have a |be of single texts)"):
            check_batching(plan, given.teacher_dim)
        return
    check_batching(plan, given.teacher_dim)
    (by_length,) = (stage for stage in plan.chain() if stage.by_length)
    assert {key: getattr(by_length, key) for key in ways} == ways
    assert list(by_length.examples.columns) == ["text"] and not by_length.examples.values


@pytest.mark.parametrize("ways", [{"budget.batch_tokens": 1024}, {"budget.length_window": 64}])
def test_an_experiment_is_checked_before_any_work(experiment: Experiment, ways: dict[str, Any]) -> None:
    asked = changed(experiment, {**ways, "budget.distil": 1024})
    check_plans(load_method("mse"), asked, [{}])
    check_plans(load_method("leaf"), asked, [{"cosine_weight": 1.0}])
    for name, values, reason in (("ckd", {}, "the stage"), ("leaf", {"spread_weight": 1.0}, "spread_weight")):
        with pytest.raises(BadInput, match=f"each text counts by itself, but .*{reason}"):
            check_plans(load_method(name), asked, [values])
    with pytest.raises(BadInput, match=r"batch_tokens >= 8 \* max_length"):
        check_plans(load_method("mse"), changed(asked, {"budget.batch_tokens": 100}), [{}])
    with pytest.raises(BadInput, match=r"budget\.length_window >= 0"):
        changed(experiment, {"budget.length_window": -1})


def test_windows_of_shards_are_asked_for_by_the_budget(experiment: Experiment, workspace: Workspace) -> None:
    asked = changed(experiment, {"budget.shard_window": 3, "budget.distil": 1024})
    check_plans(load_method("mse"), asked, [{}])
    check_plans(load_method("ckd"), asked, [{}])
    setting_ = prepare(asked, workspace, Embedding(local=True)).setting
    plan = load_method("ckd").plan(hyper_parameters(load_method("ckd"), {}), setting_)
    assert [(stage.label, stage.shard_window) for stage in plan.chain()] == [("ckd", 3)]
    with pytest.raises(BadInput, match=r"budget\.shard_window >= 0"):
        changed(experiment, {"budget.shard_window": -1})
    with pytest.raises(BadInput, match=r"must be of all rows of the sentences.*fraction=0\.5"):
        changed(asked, {"budget.fraction": 0.5})
    changed(asked, {"budget.fraction": 0.5, "budget.fraction_of": "labels"})


def test_a_student_is_trained_on_batches_by_tokens(experiment: Experiment, workspace: Workspace) -> None:
    sizes = {"budget.batch_tokens": 256, "budget.length_window": 80, "budget.distil": 160}
    setting_ = prepare(changed(experiment, sizes), workspace, Embedding(local=True)).setting
    stage = mse.plan(mse.HyperParameters(batch_size=16), setting_)
    manifest = read_manifest(run(stage, workspace, where=Where(device="cpu", threads=1)))
    assert manifest["examples"] == 160 and manifest["steps"] < 160 / 16
    assert [point["examples"] for point in manifest["evaluations"]][-1] == 160
