"""From an experiment to a setting on real files, and again without any work."""

import dataclasses
import json
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.notes import fetch_notes, publish_notes
from stillhouse.core.remotes import remote_at
from stillhouse.evaluation.agreement import Agreement
from stillhouse.evaluation.suites import run_suite
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_mapping, changed, experiment_of, fields, merged, stated
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Preparation, Prepared, prepare
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.store import open_store
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import open_model


def test_a_setting_is_prepared_from_a_text_file(prepared: Prepared, workspace: Workspace) -> None:
    setting = prepared.setting
    assert workspace.finished(setting[Sentences].only_store)
    assert setting[Sentences].rows == len(open_store(workspace, setting[Sentences].only_store)) > 60
    assert setting.student.target is TransformerStudent and setting.student.kwargs["layers"] == (0, 2)
    assert setting.get(Pairs) is None and setting.finetune_budget == 0
    assert setting.dev.select == "agreement_spearman_cosine"
    assert prepared.facts["sentences"] == setting[Sentences].rows and prepared.facts["pairs"] == 0


def test_dev_and_test_use_different_texts(prepared: Prepared) -> None:
    dev, test = prepared.setting.dev.evaluators[0], prepared.test.evaluators[0]
    assert dev.target is test.target is Agreement
    tables = {part.kwargs["store"].texts for part in (dev, test)} | {prepared.setting[Sentences].store.texts}
    assert len(tables) == 3


def test_published_sts_selects_when_requested(
    prepared: Prepared, experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "STSBenchmark").mkdir()
    rows = [f"g\tf\ty\t{row}\t{row % 6}\tA cat {row}.\tA dog {row}.\n" for row in range(8)]
    (tmp_path / "STSBenchmark" / "sts-dev.csv").write_text("".join(rows))
    (tmp_path / "STSBenchmark" / "sts-test.csv").write_text("".join(rows))
    given = changed(experiment, {"selection.by": "stsb", "selection.data_root": str(tmp_path)})
    suite = prepare(given, workspace, Embedding(local=True)).setting.dev
    assert prepared.setting.dev.select == "agreement_spearman_cosine"
    assert suite.select == "sts_stsb_spearman_cosine"
    assert suite.select in run_suite(suite, open_model(experiment.teacher.name, workspace, "cpu"), workspace)


def test_evaluation_embeds_only_texts_read_by_evaluators(
    experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    """Suites and figures are the same as in training; nothing of the other split is embedded, or mined."""
    rows = [{"query": f"cat {row}", "passage": f"dog {row} house"} for row in range(20)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = changed(experiment, {"pairs.path": str(tmp_path / "pairs.jsonl"), "budget.finetune": 64})
    local = Embedding(local=True)
    data = Preparation(given, workspace, local)
    data.make(data.dev)
    assert not list((workspace.root / "examples").glob("mined-*"))
    (store,) = (evaluator.kwargs["store"] for evaluator in data.dev.evaluators)
    made = workspace.root / "stores"
    assert [path.parent for path in made.glob("*/manifest.json")] == [workspace.path(store)]
    model = open_model(given.teacher.name, workspace, "cpu")
    figures = run_suite(data.dev, model, workspace)
    whole = prepare(given, workspace, local)
    assert (whole.setting.dev, whole.test) == (data.dev, data.test)
    assert run_suite(whole.setting.dev, model, workspace) == figures
    assert len(list(made.glob("*/manifest.json"))) == 5
    assert list((workspace.root / "examples").glob("mined-*/manifest.json"))


def test_a_second_preparation_does_no_work(
    experiment: Experiment, workspace: Workspace, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*") if path.suffix != ".lock"}
    monkeypatch.setattr("stillhouse.training.inputs.build_stores", None)
    assert prepare(experiment, workspace, Embedding(local=True)) == prepared
    after = {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*") if path.suffix != ".lock"}
    assert after == before


def test_another_kind_of_machine_takes_the_precision_of_the_vectors_that_are_there(
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two heads that share a remote: the second one embeds nothing, whatever its CPU multiplies fastest."""
    (tmp_path / "mounted").mkdir()
    nodes = [Workspace(tmp_path / name, remote_at(str(tmp_path / "mounted"))) for name in "ab"]
    has_bfloat16 = "stillhouse.teachers.embedding._has_bfloat16"
    monkeypatch.setattr("stillhouse.teachers.embedding._multiplies_slowly", lambda: False)
    monkeypatch.setattr(has_bfloat16, lambda _: True)
    experiment = changed(experiment, {"compute": "auto"})
    first = prepare(experiment, nodes[0], Embedding(local=True))
    assert first.setting[Sentences].only_store.compute == "bfloat16"
    publish_notes(nodes[0])
    monkeypatch.setattr(has_bfloat16, lambda _: False)
    fetch_notes(nodes[1])
    monkeypatch.setattr("stillhouse.training.inputs.build_stores", None)
    assert prepare(experiment, nodes[1], Embedding(local=True)).setting == first.setting
    assert "in bfloat16, as the teacher's vectors here are; --compute float32" in capsys.readouterr().err
    asked = changed(experiment, {"compute": "float32"})
    assert Preparation(asked, nodes[1], Embedding(local=True)).compute == "float32"


def test_a_new_budget_reuses_the_store_and_a_new_length_does_not(
    experiment: Experiment, workspace: Workspace, prepared: Prepared
) -> None:
    longer = prepare(changed(experiment, {"budget.distil": 128}), workspace, Embedding(local=True))
    assert (
        longer.setting != prepared.setting
        and longer.setting[Sentences].only_store == prepared.setting[Sentences].only_store
    )
    shorter = prepare(dataclasses.replace(experiment, max_length=8), workspace, Embedding(local=True))
    assert shorter.setting[Sentences].store.fingerprint != prepared.setting[Sentences].store.fingerprint


@each_row(
    ("changes", "layers"),
    [({}, (0, 3)), ({"layers": "last"}, (2, 3)), ({"layers": "first", "keep": 3}, (0, 1, 2))],
)
def test_the_student_keeps_the_requested_layers(
    changes: dict[str, object], layers: tuple[int, ...], tiny_model: Path
) -> None:
    choice = experiment_of({"student": changes}).student
    student = choice.of(resolve_model(str(tiny_model))).spec(seed=0)
    assert student.kwargs["layers"] == layers


@each_row(
    ("values", "message"),
    [
        ({"teacher.nam": "x"}, "Did you mean teacher.name"),
        ({"sentences.count": "many"}, "sentences.count must be of type int"),
        ({"sentences.count": -1}, "sentences.count >= 0"),
        ({"sentences.held_out": 0}, "held_out > 0"),
        ({"compute": "float8"}, "compute in"),
        ({"selection.by": "mrr"}, "select in"),
        ({"selection.index": "hnws"}, "unknown index `hnws`. Did you mean hnsw"),
        ({"selection.index": "flat", "sentences.corpus": "a.txt"}, "whose dev queries search.*index='flat'"),
        ({"selection.by": "search", "sentences.corpus": "a.txt"}, "select in .*agreement.* select='search'"),
        ({"selection.by": "agreement", "parallel.corpora": "de=x"}, "select in .*stsb.* select='agreement'"),
        (
            {"sentences.corpus": "a.txt", "parallel.corpora": "de=x"},
            "one source of text.*parallel",
        ),
        ({"student.unit": 3}, "goes with a student of the kind recurrent"),
        (
            {"student.kind": "static", "student.layers": "last"},
            "goes with a student of the kind recurrent or transformer",
        ),
        ({"student.kind": "recurrent"}, "student.unit >= 1"),
        ({"collection.dev_pool": 10, "sentences.corpus": "a.txt"}, "must go with the corpus pydocs"),
    ],
)
def test_a_wrong_experiment_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        experiment_of(merged({}, values))


def test_an_experiment_file_may_hold_lists_and_integers() -> None:
    read = experiment_of({"student": {"layers": [0, 2], "dropout": 0}}).student
    assert isinstance(read, TransformerChoice) and read.layers == (0, 2) and read.dropout == 0
    assert isinstance(read.dropout, float)
    assert experiment_of({}) == Experiment()


def test_every_field_has_a_description_and_a_path() -> None:
    for path, field in fields().items():
        assert field.text.endswith("."), path
        needs: dict[str, object] = {}
        if path.startswith("task."):
            needs = {"task.name": "sst2", "task.root": "x"}
        if path.startswith("claims."):
            needs = {"claims.path": "x"}
        if path.startswith("student."):
            needs = {"student.kind": "recurrent", "student.unit": 2}
        if path in ("student.keep", "student.freeze_words", "student.dense"):
            needs = {"student.kind": "transformer"}
        if path in ("student.dim", "student.start"):
            needs = {"student.kind": "static"}
        value: object = field.default
        experiment = experiment_of(merged({}, {path: value, **needs}))
        found: object = as_mapping(experiment)
        for part in path.split("."):
            assert isinstance(found, dict)
            found = found[part]
        assert found == needs.get(path, value), path


def test_a_corpus_takes_the_place_of_the_sources_of_a_file() -> None:
    several = {"sentences": {"count": 9, "sources": [{"corpus": "a.txt"}, {"corpus": "b.txt"}]}}
    assert merged(several, {"sentences.corpus": "own.txt"})["sentences"] == {"count": 9, "corpus": "own.txt"}
    assert merged(several, {"sentences.count": 8})["sentences"]["sources"]


def test_an_experiment_is_rebuilt_from_its_own_mapping() -> None:
    given = {
        "teacher.name": "large",
        "pairs.mining.range_max": 100,
        "pairs.path": "pairs.jsonl",
        "sentences.corpus": "a.txt",
        "budget.fraction": 0.5,
        "student.kind": "static",
        "student.dim": 8,
    }
    experiment = changed(Experiment(), given)
    assert experiment_of(as_mapping(experiment)) == experiment
    assert stated(experiment) == given and stated(Experiment()) == {}
    assert experiment.get(Pairs).mining.range_max == 100 and experiment.get(Sentences).corpus == "a.txt"
    assert [kind.key for kind in experiment.kinds] == ["sentences", "pairs"]
    assert [kind.key for kind in Experiment().kinds] == ["sentences", "collection", "pairs"]
    assert [kind.key for kind in experiment_of({"pairs": None}).kinds] == ["sentences", "collection"]
    assert changed(experiment_of({"pairs": None}), {"seed": 1}).without == ("pairs",)
