"""Shares of the training rows: which rows are kept, and the curve that `train --fractions` prints."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import open_rows
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.data_kind import DataKind
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of, merged
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.shares import counted, cut
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import check_fraction, hyper_parameters, known_methods, load_method
from stillhouse.search.trial import Context
from stillhouse.sweeps.curve import curve_table, train_at
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Mined, Model
from stillhouse.values.setting import Setting

WHERE = Where(device="cpu", threads=1)
TEACHER = Model("placeholder")


def share(of: str, fraction: float = 0.5) -> Budget:
    return Budget(fraction=fraction, fraction_of=of)


def planned(tiny_model: Path, *, labelled: bool = True) -> Setting:
    """Return a setting with all kinds of data, none of which exists on disk."""
    experiment = Experiment(student=TransformerChoice(str(tiny_model)))
    setting = experiment.of(resolve_model(str(tiny_model))).sketch()
    task = LabelledTask(name="sst2", root="nowhere", wordnet="nowhere")
    kinds: tuple[DataKind[Any], ...] = (Parallel("de=x"), task, WordVectors(), Claims("nowhere"))
    for kind in kinds:
        setting = setting.having(type(kind), kind.reader.sketch(experiment))
    return setting if labelled else setting.having(Pairs, None)


@each_row("name", known_methods())
def test_a_share_changes_every_methods_plan(name: str, tiny_model: Path) -> None:
    method, whole = load_method(name), planned(tiny_model)
    hp = hyper_parameters(method, {})
    ids = [method.plan(hp, cut(whole, share("all", f))).fingerprint for f in (1.0, 0.5, 0.1)]
    assert len(set(ids)) == 3 and ids[0] == method.plan(hp, whole).fingerprint
    check_fraction(method, hp, whole, share("all"))


@each_row(("name", "of"), [("simcse", "sentences"), ("bilstm_kd", "sentences"), ("hpd", "labels")])
def test_a_share_of_what_a_method_does_not_read_is_refused(name: str, of: str, tiny_model: Path) -> None:
    method = load_method(name)
    setting = planned(tiny_model, labelled=name == "simcse")
    with pytest.raises(BadInput, match=f"must name rows that {name} trains on here"):
        check_fraction(method, hyper_parameters(method, {}), setting, share(of))


def test_a_share_cuts_training_rows_and_nothing_else(context: Context) -> None:
    whole, workspace = context.setting, Workspace(Path(context.root))
    half = cut(whole, share("labels"))
    assert half[Sentences].sample is None and half[Parallel] == whole[Parallel]
    assert half[Pairs] != whole[Pairs] and half[LabelledTask] != whole[LabelledTask]
    assert isinstance(whole[Pairs].examples.origin, Mined) and half[Pairs].stores == whole[Pairs].stores
    assert len(open_rows(workspace, half[LabelledTask].examples)["text"]) == 30
    kept = counted(half, workspace)
    assert kept.rows_of(kept[LabelledTask].examples) == 30
    assert kept.rows_of(kept[Pairs].examples) == round(
        counted(whole, workspace).rows_of(whole[Pairs].examples) / 2
    )
    assert kept.length(kept[LabelledTask].examples, epochs=2.5) == 75
    other = cut(whole, share("sentences"))
    assert other[Pairs] == whole[Pairs] and other[LabelledTask] == whole[LabelledTask]
    assert other[Sentences].store == whole[Sentences].store
    assert other[Sentences].sample
    assert len(open_rows(workspace, other[Sentences].examples)["text"]) == other[Sentences].rows
    assert other[Sentences].rows == round(whole[Sentences].rows / 2)
    assert len(open_rows(workspace, other[Parallel].examples)["source"]) == 20
    assert other[Claims].rows == round(whole[Claims].rows / 2) and half[Claims] == whole[Claims]


def test_a_share_of_pairs_is_mined_against_all_passages(context: Context) -> None:
    method, workspace = load_method("simcse"), Workspace(Path(context.root))
    setting = dataclasses.replace(context.setting, finetune_budget=8)
    half = method.plan(hyper_parameters(method, {"batch_size": 8}), cut(setting, share("labels")))
    run(half, workspace, where=WHERE)
    assert workspace.finished(setting[Pairs].examples)
    whole, part = (open_rows(workspace, rows) for rows in (setting[Pairs].examples, half.examples))
    at = {int(query): place for place, query in enumerate(whole["query"])}
    assert len(part["query"]) == round(len(whole["query"]) / 2)
    assert all(
        np.array_equal(whole["negatives"][at[int(query)]], negatives)
        for query, negatives in zip(part["query"], part["negatives"], strict=True)
    )


def test_a_learning_curve_embeds_once_and_is_cached(
    experiment: Experiment,
    prepared: Prepared,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stores = {path: path.stat().st_mtime_ns for path in (workspace.root / "stores").rglob("*.arrow")}
    method = load_method("hpd")
    hp = hyper_parameters(method, {"dim": 8, "batch_size": 16})
    report = []
    for _ in range(2):
        report.append(train_at((1.0, 0.5), method, hp, experiment, workspace, Embedding(local=True), WHERE))
        monkeypatch.setattr("stillhouse.training.walk._train", None)
    after = {path: path.stat().st_mtime_ns for path in (workspace.root / "stores").rglob("*.arrow")}
    assert after == stores and len(stores) >= 3
    assert report[0] == report[1] and len({point.folder for point in report[0]}) == 2
    rows = prepared.setting[Sentences].rows
    said = capsys.readouterr().err.split()
    assert f"{rows:,}" in said and f"{round(rows / 2):,}" in said, "the passes over both"
    assert [point.rows for point in report[0]] == [{"hpd": rows}, {"hpd": round(rows / 2)}]
    header, *lines = curve_table(report[0]).split("\n")[-4:]
    assert "fraction" in header and lines[1].split()[:2] == ["1", str(rows)]
    assert lines[2].split()[:2] == ["0.5", str(round(rows / 2))]
    facts = prepare(changed(experiment, {"budget.fraction": 0.5}), workspace, Embedding(local=True)).facts
    assert facts["sentences"] == round(rows / 2) and facts["fraction"] == 0.5


def test_too_small_a_share_is_refused_before_any_training(
    experiment: Experiment, prepared: Prepared, workspace: Workspace
) -> None:
    method = load_method("mse")
    hp = hyper_parameters(method, {"batch_size": 16})
    with pytest.raises(BadInput, match=r"rows of the stage \w+ >= batch_size.*fraction=0.1"):
        train_at((1.0, 0.1), method, hp, experiment, workspace, Embedding(local=True), WHERE)
    assert not workspace.listed("stages")


def test_values_out_of_range() -> None:
    for values, report in (
        ({"budget.fraction": 0.0}, "0 < fraction <= 1"),
        ({"budget.fraction_of": "rows"}, "fraction_of in"),
        ({"task.wordnet": "yaml"}, "a task must come with the folder of its files"),
        ({"task.name": "sst2", "task.root": "x", "task.copies": 0}, "task.copies > 0"),
    ):
        with pytest.raises(BadInput, match=report):
            experiment_of(merged({}, values))
