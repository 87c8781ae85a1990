"""Experiments whose teacher is there by its vectors alone: the same students, and what needs a model."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import open_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of, merged
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.mined_pairs import mine
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.sweeps.checks import check_plans
from stillhouse.sweeps.contenders import figures_of, teacher
from stillhouse.teachers.store import StoreReader, open_store
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import TextTable, VectorFiles
from stillhouse.values.stage import DevSuite, TestSuite

LOCAL = Embedding(local=True)


def exported(workspace: Workspace, path: Path) -> str:
    """Write the vectors of all stores of a workspace to a Parquet file."""
    texts: list[str] = []
    vectors: list[npt.NDArray[np.float16]] = []
    for manifest in sorted((workspace.root / "stores").glob("*/manifest.json")):
        sha256 = read_manifest(manifest.parent)["plan"]["with"]["texts"]["with"]["sha256"]
        texts += list(open_texts(workspace, TextTable(sha256, manifest.parent.name.rpartition("-")[0])))
        reader = StoreReader(manifest.parent)
        vectors += list(reader.gather(reader.rows).astype(np.float16))
    pq.write_table(pa.table({"text": texts, "embedding": pa.array(vectors, pa.list_(pa.float16()))}), path)
    return str(path)


@pytest.fixture
def by_vectors(
    experiment: Experiment, prepared: Prepared, workspace: Workspace, tmp_path: Path
) -> Experiment:
    """The small experiment with its own teacher's vectors from a file instead of the teacher."""
    assert prepared.setting.teacher_dim
    source = exported(workspace, tmp_path / "vectors.parquet")
    given = {"teacher.name": "all-MiniLM-L6-v2", "teacher.vectors": source}
    return changed(experiment, {**given, "student.checkpoint": experiment.teacher.name})


def weights_of(setting_of: Prepared, method: str, workspace: Workspace) -> str:
    module = load_method(method)
    plan = module.plan(hyper_parameters(module, {"batch_size": 8}), setting_of.setting)
    folder = run(plan, workspace, where=Where(device="cpu", threads=1))
    return str(read_manifest(folder)["weights_sha256"])


@pytest.mark.parametrize("method", ["mse", "ckd"])
def test_the_same_vectors_give_the_same_weights(
    method: str, experiment: Experiment, by_vectors: Experiment, workspace: Workspace
) -> None:
    named = changed(experiment, {"student.checkpoint": experiment.teacher.name})
    native, imported = (prepare(each, workspace, LOCAL) for each in (named, by_vectors))
    assert isinstance(imported.setting.teacher, VectorFiles)
    assert native.setting.student == imported.setting.student
    stores = [each.setting[Sentences].only_store for each in (native, imported)]
    assert stores[0].fingerprint != stores[1].fingerprint
    assert native.setting.teacher_dim == imported.setting.teacher_dim == 32
    assert weights_of(native, method, workspace) == weights_of(imported, method, workspace)
    other = changed(by_vectors, {"seed": 1})
    assert weights_of(prepare(other, workspace, LOCAL), method, workspace) != weights_of(
        native, method, workspace
    )
    assert imported.facts["teacher"] == "vectors of vectors.parquet"
    assert imported.facts["teacher_head"] == "vectors of length 1"


def test_nothing_but_the_files_is_read_of_the_teacher(
    by_vectors: Experiment, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillhouse.teachers.runtimes.load_teacher", None)
    monkeypatch.setattr("stillhouse.students.head.own_dimension", None)
    check_plans(load_method("ibkd"), by_vectors, [{"distil_batch_size": 16}])
    prepared = prepare(by_vectors, workspace, LOCAL)
    store = prepared.setting[Sentences].only_store
    assert len(open_store(workspace, store)) == prepared.setting[Sentences].rows


def test_a_method_that_runs_the_teacher_is_refused_before_any_work(by_vectors: Experiment) -> None:
    with pytest.raises(
        BadInput, match=r"pkd runs or trains the teacher in its stage pkd, so it must be one mo"
    ):
        check_plans(load_method("pkd"), by_vectors, [{}])
    with pytest.raises(BadInput, match="needs the teacher as a model"):
        by_vectors.teacher.finder.published()


def test_a_student_needs_a_checkpoint_of_its_own(by_vectors: Experiment, workspace: Workspace) -> None:
    nameless = changed(by_vectors, {"student.checkpoint": ""})
    before = sorted(workspace.root.rglob("*"))
    for attempt in (
        lambda: check_plans(load_method("mse"), nameless, [{}]),
        lambda: prepare(nameless, workspace, LOCAL),
    ):
        with pytest.raises(BadInput, match=r"student\.checkpoint must be given where.*Name a model"):
            attempt()
    assert sorted(workspace.root.rglob("*")) == before


@each_row(
    ("values", "message"),
    [
        (
            {"pooling": "cls"},
            r"teacher\.vectors must be given without what says how a model is run.*pooling='cls'",
        ),
        ({"max_length": 64}, "max_length=64"),
        ({"prompts": {"query": "query: "}}, r"prompts=\{'query': 'query: '\}"),
        (
            {"vectors": "", "text_column": "body"},
            r"teacher\.text_column must go with teacher\.vectors.*text_column='body'",
        ),
        ({"vectors": "", "incomplete": True}, r"must go with teacher\.vectors.*incomplete=True"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        experiment_of({"teacher": {"vectors": "files/*.parquet", **values}})


def test_the_teacher_is_measured_where_the_files_have_the_texts(
    by_vectors: Experiment, workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "STSBenchmark").mkdir()
    rows = [f"g\tf\ty\t{row}\t{row % 6}\tA cat {row}.\tA dog {row}.\n" for row in range(8)]
    for split in ("dev", "test"):
        (tmp_path / "STSBenchmark" / f"sts-{split}.csv").write_text("".join(rows))
    given = changed(by_vectors, {"selection.data_root": str(tmp_path)})
    prepared = prepare(given, workspace, LOCAL)
    vectors = prepared.setting.teacher
    assert isinstance(vectors, VectorFiles)
    encoder, module = teacher(vectors, 16, "cpu")
    assert module is None
    suites: tuple[DevSuite | TestSuite, ...] = (prepared.setting.dev, prepared.test)
    for suite in suites:
        capsys.readouterr()
        figures, _ = figures_of(suite, encoder, workspace)
        assert list(figures) == ["agreement_spearman_cosine"] and figures["agreement_spearman_cosine"] > 0.999
        assert "the teacher has no figures of STS: every text must have a vector" in capsys.readouterr().err


def test_negatives_are_mined_by_the_vectors(
    experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    nouns = "cat dog house river water sun moon red green blue fast slow".split()
    pairs = [{"query": f"{a} and {b}", "passage": f"the {a} {b}"} for a in nouns for b in nouns if a < b]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    changes = {"pairs.path": str(tmp_path / "pairs.jsonl"), "pairs.negatives": 2, "pairs.count": 0}
    given = changed(experiment, {**changes, "pairs.mining.relative_margin": 0.0})
    outputs = [tmp_path / name for name in ("native.jsonl", "imported.jsonl")]
    mine(given, workspace, LOCAL, outputs[0])
    source = exported(workspace, tmp_path / "pairs.parquet")
    imported = changed(given, {"teacher.name": "all-MiniLM-L6-v2", "teacher.vectors": source})
    report = mine(imported, workspace, LOCAL, outputs[1])
    assert report["teacher"] == "vectors of pairs.parquet" and report["pairs"] > 20
    assert outputs[0].read_text() == outputs[1].read_text()


def test_fields_are_reached_by_their_paths() -> None:
    given = experiment_of(merged({}, {"teacher.vectors": "a.parquet", "teacher.vector_column": "v"}))
    assert (given.teacher.vectors, given.teacher.vector_column) == ("a.parquet", "v")
    assert dataclasses.asdict(given.teacher)["incomplete"] is False


def test_texts_without_a_vector_stop_an_experiment_before_training(
    by_vectors: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "vectors.parquet"
    whole = pq.read_table(path)
    pq.write_table(whole.take([row for row in range(len(whole)) if row % 5]), path)
    with pytest.raises(
        BadInput, match=r"the text of \d+ rows \(.*in words.* has none\. The texts as they are"
    ):
        prepare(by_vectors, workspace, LOCAL)
    prepared = prepare(changed(by_vectors, {"teacher.incomplete": True}), workspace, LOCAL)
    store = prepared.setting[Sentences].only_store
    lost = len(open_texts(workspace, store.texts)) - len(open_store(workspace, store))
    assert lost > 0
    assert weights_of(prepared, "mse", workspace)
