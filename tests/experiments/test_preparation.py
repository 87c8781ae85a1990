"""From an experiment to a setting, for real, and a second time without any work."""

import dataclasses
from pathlib import Path

import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.evaluation.agreement import Agreement
from stillhouse.evaluation.suites import run_suite
from stillhouse.experiments.experiment import Experiment, experiment
from stillhouse.experiments.preparation import Embedding, Prepared, prepare
from stillhouse.experiments.student_kinds import student_spec
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.store import open_store
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.walk import open_model


def test_a_setting_out_of_a_text_file(prepared: Prepared, workspace: Workspace) -> None:
    setting = prepared.setting
    assert workspace.finished(setting.sentences)
    assert setting.sentence_rows == len(open_store(workspace, setting.sentences)) > 60
    assert setting.student.target is TransformerStudent and setting.student.kwargs["layers"] == (0, 2)
    assert setting.labelled is None and setting.finetune_budget == 0
    assert setting.dev.select == "agreement_spearman_cosine"
    assert prepared.facts["sentences"] == setting.sentence_rows and prepared.facts["pairs"] == 0


def test_dev_and_test_look_at_different_texts(prepared: Prepared) -> None:
    dev, test = prepared.setting.dev.evaluators[0], prepared.test.evaluators[0]
    assert dev.target is test.target is Agreement
    tables = {part.kwargs["store"].texts for part in (dev, test)} | {prepared.setting.sentences.texts}
    assert len(tables) == 3


def test_published_sts_selects_where_it_is_asked_for(
    prepared: Prepared, wanted: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "STSBenchmark").mkdir()
    rows = [f"g\tf\ty\t{row}\t{row % 6}\tA cat {row}.\tA dog {row}.\n" for row in range(8)]
    (tmp_path / "STSBenchmark" / "sts-dev.csv").write_text("".join(rows))
    (tmp_path / "STSBenchmark" / "sts-test.csv").write_text("".join(rows))
    changed = dataclasses.replace(wanted, select="stsb", data_root=str(tmp_path))
    suite = prepare(changed, workspace, Embedding(local=True)).setting.dev
    assert prepared.setting.dev.select == "agreement_spearman_cosine"
    assert suite.select == "sts_stsb_spearman_cosine"
    assert suite.select in run_suite(suite, open_model(wanted.teacher, workspace, "cpu"), workspace)


def test_a_second_time_nothing_is_made(
    wanted: Experiment, workspace: Workspace, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*") if path.suffix != ".lock"}
    monkeypatch.setattr("stillhouse.teachers.embedding.build_stores", None)
    assert prepare(wanted, workspace, Embedding(local=True)) == prepared
    after = {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*") if path.suffix != ".lock"}
    assert after == before


def test_another_budget_keeps_the_store_and_another_length_does_not(
    wanted: Experiment, workspace: Workspace, prepared: Prepared
) -> None:
    longer = prepare(dataclasses.replace(wanted, distil_budget=128), workspace, Embedding(local=True))
    assert longer.setting != prepared.setting and longer.setting.sentences == prepared.setting.sentences
    shorter = prepare(dataclasses.replace(wanted, max_length=8), workspace, Embedding(local=True))
    assert shorter.setting.sentences.fingerprint != prepared.setting.sentences.fingerprint


@pytest.mark.parametrize(
    ("changes", "layers"),
    [({}, (0, 2)), ({"layers": "last"}, (2, 3)), ({"layers": "first", "keep": 3}, (0, 1, 2))],
)
def test_the_student_keeps_the_layers_that_are_asked_for(
    changes: dict[str, object], layers: tuple[int, ...], tiny_model: Path
) -> None:
    student = student_spec(experiment(changes), resolve_model(str(tiny_model)))
    assert student.kwargs["layers"] == layers


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"teachr": "x"}, "Did you mean teacher"),
        ({"sentences": "many"}, "sentences is a int"),
        ({"sentences": -1}, "sentences >= 0"),
        ({"held_out": 0}, "held_out > 0"),
        ({"compute": "float8"}, "compute in"),
        ({"select": "mrr"}, "select in"),
        ({"select": "search", "corpus": "a.txt"}, "a corpus that has queries"),
        ({"select": "agreement", "parallel": "de=x"}, "translation accuracy, or by stsb"),
    ],
)
def test_a_wrong_experiment_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        experiment(values)


def test_an_experiment_out_of_a_file_takes_lists_and_whole_numbers() -> None:
    read = experiment({"layers": [0, 2], "dropout": 0})
    assert read.layers == (0, 2) and read.dropout == 0
    assert experiment({}) == Experiment()
