"""From the files of a task and of word vectors to the inputs of a plan."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from stillhouse.api import train
from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.corpora.barrier import Barrier
from stillhouse.corpora.tables import open_rows, open_texts, open_values, write_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of
from stillhouse.experiments.kinds.labelled_task import LabelledTask
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.task_rows import augmented_rows, read_labelled_task
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.experiments.vocabulary import word_vectors
from stillhouse.losses.heads import UNLABELLED
from stillhouse.methods import kinds_read, load_method
from stillhouse.sweeps.checks import warn_of_few_steps
from stillhouse.teachers.weights import resolve_model

PAIRS = [("a cat", "the cat", 1), ("a dog", "a house", 0), ("a cat", "a  dog", 0), (" ", "nothing", 1)]


@pytest.fixture
def qqp(tmp_path: Path) -> Path:
    folder = tmp_path / "QQP"
    folder.mkdir()
    lines = ["question1\tquestion2\tis_duplicate", *(f"{a}\t{b}\t{label}" for a, b, label in PAIRS)]
    measured = [lines[0], "a river\tthe river\t1", "a river\ta tree\t0"]
    for split, found in (("train", lines), ("dev", measured)):
        (folder / f"{split}.tsv").write_text("\n".join(found) + "\n")
    return folder


def test_pairs_and_their_labels(workspace: Workspace, qqp: Path) -> None:
    task, final = read_labelled_task(workspace, "QQP", str(qqp))
    rows, labels = open_rows(workspace, task.examples), open_values(workspace, task.examples)["label"]
    texts = {name: open_texts(workspace, table) for name, table in task.examples.columns.items()}
    found = zip(texts["text"][rows["text"]], texts["other"][rows["other"]], labels.tolist(), strict=True)
    assert list(task.examples.columns) == ["text", "other"] and task.classes == 2
    assert list(found) == [("a cat", "the cat", 1), ("a dog", "a house", 0), ("a cat", "a dog", 0)]
    assert task.dev.select == "qqp_accuracy" and final == ()
    assert task.untuned is not None and task.untuned.select == "qqp_cosine_accuracy"
    with pytest.raises(BadInput, match="no train file of mrpc"):
        read_labelled_task(workspace, "MRPC", str(qqp.parent))


def test_word_vectors_are_initialised_from_counts_or_read(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [write_texts(workspace, "a", ["A cat sat.", "a dog"]), write_texts(workspace, "b", ["the sun"])]
    counted = word_vectors(workspace, "", tables)
    assert word_vectors(workspace, "count", tables) == counted
    ids, _ = FastTokenizer(Path(counted.path), 8)(["the cat sat ."])
    assert len(set(ids.tolist())) == 4 and min(ids.tolist()) > 2, "no word is unknown"
    file = tmp_path / "vectors.json"
    file.write_text(json.dumps({"cat": [1.0, 2.0], "moon": [3.0, 4.0]}))
    few, all_rows = (word_vectors(workspace, str(file), tables, further=further) for further in (0, 100))
    ids, _ = FastTokenizer(Path(few.path), 8)(["cat moon"])
    assert ids.tolist()[0] > 2 and ids.tolist()[1] == 1, "the moon is not in the texts"
    ids, _ = FastTokenizer(Path(all_rows.path), 8)(["cat moon"])
    assert min(ids.tolist()) > 2 and few != all_rows
    said = capsys.readouterr().err
    assert "random vectors for the 7 words" in said
    assert "1 word vectors of vectors.json" in said and "2 word vectors of vectors.json" in said
    assert "they cover 1 of the 7 words of the texts, 12.5 % of their occurrences" in said
    with pytest.raises(BadInput, match="file of word vectors must exist"):
        word_vectors(workspace, str(tmp_path / "nothing.txt"), tables)


def test_an_experiment_with_a_task(
    experiment: Experiment, prepared: Prepared, workspace: Workspace, qqp: Path
) -> None:
    given = changed(experiment, {"task.name": "QQP", "task.root": str(qqp), "budget.finetune": 6})
    setting = prepare(given, workspace, Embedding(local=True)).setting
    assert prepared.setting.get(WordVectors) is None and prepared.setting.get(LabelledTask) is None
    assert setting[WordVectors] and setting.finetune_budget == 6
    method = load_method("sra")
    labels = [stage.label for stage in method.plan(method.HyperParameters(), setting).chain()]
    assert labels == ["sra", "finetune"]
    columns = list(setting[LabelledTask].examples.columns)
    assert setting.teacher_dim == 32 and np.isin(["text", "other"], columns).all()


@pytest.mark.parametrize(
    ("method", "values", "embedded"),
    [
        ("bilstm_kd", {"kd_weight": 0.0}, []),
        ("bilstm_kd", {"kd_weight": 1.0, "teacher_batch_size": 3}, []),
        ("bilstm_kd", {"fits": "cosines"}, ["qqp-train"]),
        ("sra", {"finetune_batch_size": 3}, ["words-dev", "words-train"]),
    ],
)
def test_the_teacher_embeds_only_what_a_stage_reads(
    method: str,
    values: dict[str, object],
    embedded: list[str],
    experiment: Experiment,
    qqp: Path,
    tmp_path: Path,
) -> None:
    """Also nothing for a dev figure that no stage selects by."""
    changes = {"task.name": "QQP", "task.root": str(qqp), "budget.finetune": 6, "budget.evaluations": 1}
    small = {"hidden": 4, **({} if method == "sra" else {"batch_size": 3})}
    trained = train(method, changed(experiment, changes), values=small | values, root=tmp_path / "runs")
    stores = (tmp_path / "runs" / "stores").glob("*/manifest.json")
    assert sorted(path.parent.name.rpartition("-")[0] for path in stores) == embedded
    assert trained.metrics
    if embedded:
        return
    report = tmp_path / "report.json"
    where = ["--root", str(tmp_path / "runs"), "--json", str(report)]
    assert main(["evaluate", str(trained.folder), "--task", "qqp", "--task-root", str(qqp), *where]) == 0
    figures = json.loads(report.read_text())["metrics"]
    assert figures["qqp_accuracy"] == trained.metrics["qqp_accuracy"] and "qqp_cosine_accuracy" in figures
    assert not any((tmp_path / "runs" / "stores").glob("*")), "the default corpus is not embedded for it"


@pytest.mark.parametrize(
    ("method", "values", "read"),
    [
        ("simcse", {}, False),
        ("pkd", {"finetune_batch_size": 4}, False),
        ("mse", {"finetune_batch_size": 4}, True),
    ],
)
def test_the_teacher_embeds_the_sentences_only_if_a_stage_reads_its_vectors(
    method: str, values: dict[str, object], read: bool, experiment: Experiment, tmp_path: Path
) -> None:
    """Not for pairs alone, nor for a teacher that runs along; what dev measures is embedded in any case."""
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"query": f"cat {row}", "passage": f"dog {row} house"} for row in range(20)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {"pairs.path": str(pairs), "pairs.mined": 0, "budget.distil": 16, "budget.finetune": 16}
    small = {"batch_size": 4, **values}
    trained = train(method, changed(experiment, changes), values=small, root=tmp_path / "runs")
    stores = (tmp_path / "runs" / "stores").glob("*/manifest.json")
    names = {path.parent.name.rpartition("-")[0] for path in stores}
    assert "words-dev" in names and "words-test" not in names and ("words-train" in names) is read
    assert trained.metrics["agreement_spearman_cosine"]


def test_queries_and_pairs_of_the_documentation_are_not_read_for_a_task(tiny_model: Path, qqp: Path) -> None:
    given = experiment_of({"task": {"name": "qqp", "root": str(qqp)}, "teacher": {"name": str(tiny_model)}})
    setting = given.of(resolve_model(str(tiny_model))).sketch()
    plain, sra = load_method("bilstm_kd"), load_method("sra")
    alone = kinds_read(plain, plain.HyperParameters(kd_weight=0.0), given, setting)
    assert alone == {"sentences", "task", "words"}
    assert kinds_read(sra, sra.HyperParameters(), given, setting) == {kind.key for kind in given.kinds}


def test_few_steps_are_said_with_the_flag_that_raises_them(
    experiment: Experiment, qqp: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = changed(experiment, {"task.name": "QQP", "task.root": str(qqp), "budget.finetune": 6})
    values = {"hidden": 4, "distil_batch_size": 16, "finetune_batch_size": 3}
    train("sra", given, values=values, root=tmp_path / "runs")
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "optimiser steps" in line]
    assert "sra 4, finetune 2. Below 200" in line and "Raise --distil-budget and --finetune-budget" in line
    setting, sra = given.of(resolve_model(given.teacher.name)).sketch(), load_method("sra")
    warn_of_few_steps(sra, sra.HyperParameters(), setting)
    assert not capfd.readouterr().err, "long stages are not mentioned"


def test_augmented_rows_have_no_label_and_are_built_once(
    workspace: Workspace, qqp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nouns = "".join(f"  - {noun}\n" for noun in ("cat", "dog", "house"))
    (tmp_path / "noun.act.yaml").write_text(f"00000001-n:\n  members:\n{nouns}  partOfSpeech: n\n")
    task, _ = read_labelled_task(workspace, "QQP", str(qqp))
    vary = functools.partial(augmented_rows, Barrier(workspace), task.examples, str(tmp_path), copies=20)
    whole, few = vary(most=0), vary(most=5)
    label = open_values(workspace, whole)["label"]
    assert label[:3].tolist() == [1, 0, 0] and len(label) > 6 and set(label[3:].tolist()) == {UNLABELLED}
    assert len(open_values(workspace, few)["label"]) == 5
    assert open_values(workspace, vary(most=2))["label"].tolist() == [1, 0, 0]
    monkeypatch.setattr("stillhouse.experiments.task_rows.read_wordnet", None)
    assert vary(most=0) == whole and vary(most=5) == few


def test_a_task_needs_its_folder_and_no_parallel_text(qqp: Path) -> None:
    with pytest.raises(BadInput, match="come with the folder of its files"):
        experiment_of({"task": {"name": "qqp"}})
    with pytest.raises(BadInput, match="must come without other kinds"):
        experiment_of({"words": {"vectors": "count"}, "parallel": {"corpora": "de=de.tsv"}})
