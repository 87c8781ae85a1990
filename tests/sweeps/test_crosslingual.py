"""The cross-lingual method from files to a student: split, four stages, translation accuracy, export."""

import random
from pathlib import Path

import pytest

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.schema import Schema
from stillhouse.corpora.reading.translations import language_spans
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.experiments.budget import Budget
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.experiments.parallel_text import parallel_corpora, read_parallel_data
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Examples

WORDS = "cat dog sat mat house river water sun moon red green blue fast slow".split()
WHERE = Where(device="cpu", threads=1)


def translated(path: Path, turn: int, count: int = 300) -> str:
    """Write sentences with their translations, which map every word to another word."""
    draw = random.Random(0)
    lines: dict[str, str] = {}
    other = dict(zip(WORDS, WORDS[turn:] + WORDS[:turn], strict=True))
    while len(lines) < count:
        words = draw.choices(WORDS, k=draw.randint(3, 7))
        lines[" ".join(words)] = " ".join(other[word] for word in words)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in lines.items()))
    return str(path)


@pytest.fixture
def experiment(tmp_path: Path, tiny_model: Path) -> Experiment:
    files = {
        language: translated(tmp_path / f"{language}.tsv", turn) for turn, language in ((3, "xx"), (5, "yy"))
    }
    return Experiment(
        teacher=TeacherChoice(str(tiny_model)),
        student=TransformerChoice(str(tiny_model)),
        data=(Parallel(",".join(f"{language}={file}" for language, file in files.items()), held_out=20),),
        budget=Budget(distil=64, evaluations=1),
        max_length=16,
        compute="float32",
    )


@pytest.fixture
def prepared(experiment: Experiment, workspace: Workspace) -> Prepared:
    return prepare(experiment, workspace, Embedding(local=True))


def sentences(workspace: Workspace, examples: Examples, side: str) -> list[str]:
    return open_texts(workspace, examples.columns[side])[open_rows(workspace, examples)[side]]


def pairs_of(workspace: Workspace, examples: Examples) -> set[tuple[str, ...]]:
    sides = (sentences(workspace, examples, side) for side in ("source", "target"))
    return set(zip(*sides, strict=True))


def test_no_held_out_sentence_is_trained_on(experiment: Experiment, workspace: Workspace) -> None:
    parts = read_parallel_data(workspace, experiment.get(Parallel).corpora, limit=0, held_out=20)
    train, dev, test = parts.train, parts.dev, parts.test
    assert parts.contrast is None
    for part in (train, dev, test):
        assert [language for language, _ in language_spans(workspace, part)] == ["xx", "yy"]
    assert [len(span) for part in (dev, test) for _, span in language_spans(workspace, part)] == [20] * 4
    for side in ("source", "target"):
        trained, held = set(sentences(workspace, train, side)), sentences(workspace, dev, side)
        assert not trained & {*held, *sentences(workspace, test, side)}
    assert not set(sentences(workspace, dev, "source")) & set(sentences(workspace, test, "source"))
    assert read_parallel_data(workspace, experiment.get(Parallel).corpora, limit=0, held_out=20) == parts


def test_dev_steers_and_test_stays_locked(
    experiment: Experiment, prepared: Prepared, workspace: Workspace
) -> None:
    parts = read_parallel_data(workspace, experiment.get(Parallel).corpora, limit=0, held_out=20)
    held_out = [
        [each.kwargs["examples"] for each in suite.evaluators if "examples" in each.kwargs]
        for suite in (prepared.setting.dev, prepared.test)
    ]
    assert held_out == [[parts.dev], [parts.test]]


def test_the_contrastive_stage_reads_corpora_of_its_own(
    experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    """Two corpora of one language, one of them for stages 1 to 3, the other for stage 4, and one for both."""
    xx = translated(tmp_path / "more.tsv", 3, count=500).removesuffix(".tsv")
    lines = Path(f"{xx}.tsv").read_text().splitlines(keepends=True)
    for part, name in ((lines[:100], "a"), (lines[100:300], "b"), (lines[300:], "c")):
        (tmp_path / f"{name}.tsv").write_text("".join(part))
    a, b, c = (f"xx={tmp_path / name}.tsv" for name in "abc")
    data = read_parallel_data(workspace, f"{a},{b}", contrast=f"{b},{c}", limit=0, held_out=20)
    assert data.contrast is not None
    pairs = {name: pairs_of(workspace, part) for name, part in vars(data).items()}
    known = {
        name: {tuple(line.split("\t")) for line in (tmp_path / f"{name}.tsv").read_text().splitlines()}
        for name in "abc"
    }
    held = pairs["dev"] | pairs["test"]
    assert len(pairs["dev"]) == len(pairs["test"]) == 20 and not held & (pairs["train"] | pairs["contrast"])
    assert pairs["train"] <= known["a"] | known["b"] and pairs["contrast"] <= known["b"] | known["c"]
    assert all(pairs["train"] & known[name] for name in "ab")
    assert all(pairs["contrast"] & known[name] for name in "bc")
    corpora = {"parallel.corpora": f"{a},{b}", "parallel.contrast": c, "parallel.held_out": 20}
    given = changed(experiment, corpora)
    setting = prepare(given, workspace, Embedding(local=True)).setting
    method = load_method("crosslingual")
    hp = hyper_parameters(method, {"batch_size": 16, "unit": 2, "bottleneck": 8})
    *earlier, last = method.plan(hp, setting).chain()
    assert all(stage.examples == setting[Parallel].examples for stage in earlier)
    assert last.examples == setting[Parallel].contrast != setting[Parallel].examples


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ({}, ["assistant", "align", "student", "contrast"]),
        pytest.param({"bottleneck": 0}, ["assistant", "student", "contrast"], marks=pytest.mark.long),
        ({"recipe": "single"}, ["student"]),
        ({"recipe": "predistilled"}, ["imitate", "student"]),
    ],
)
def test_each_stage_builds_on_the_previous_one(
    values: dict[str, object], labels: list[str], prepared: Prepared, workspace: Workspace
) -> None:
    method = load_method("crosslingual")
    hp = hyper_parameters(method, {"batch_size": 16, "unit": 2, "bottleneck": 8, **values})
    last = method.plan(hp, prepared.setting)
    stages = list(last.chain())
    assert [stage.label for stage in stages] == labels
    run(last, workspace, where=WHERE)
    for stage in stages:
        metrics = read_manifest(workspace.path(stage))["metrics"]
        assert 0 <= metrics["translation_mean_accuracy"] <= 1
        assert {"translation_xx_mean_accuracy", "translation_yy_src2trg_accuracy"} <= set(metrics)


def test_the_student_starts_from_the_assistant_and_the_aligned_words(
    prepared: Prepared, workspace: Workspace
) -> None:
    from safetensors.torch import load_file

    from stillhouse.training.module import build_module

    method = load_method("crosslingual")
    hp = hyper_parameters(method, {"batch_size": 16, "unit": 2, "bottleneck": 8})
    last = method.plan(hp, prepared.setting)
    assistant, align, student, _ = last.chain()
    run(align, workspace, where=WHERE)
    weights = [load_file(workspace.path(stage) / "student.safetensors") for stage in (assistant, align)]
    start = build_module(student, 32, workspace.path(align) / "student.safetensors").student.state_dict()
    layers = [name for name in start if ".layer." in name]
    assert layers and all(start[name].equal(weights[0][name]) for name in layers)
    words = [name for name in start if "word_embeddings" in name]
    assert words and all(start[name].equal(weights[1][name]) for name in words)


@pytest.mark.parametrize(
    ("languages", "figure"), [("de", "en-de"), ("de es", "cross_avg")], ids=["one pair", "several"]
)
def test_cross_lingual_sts_can_select(
    languages: str, figure: str, experiment: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    for language in ("en", *languages.split()):
        lines = [f"{WORDS[row]} {WORDS[row + 1]},{WORDS[row + 2]} {WORDS[0]},{row % 5}\n" for row in range(9)]
        (tmp_path / f"stsb-{language}-dev.csv").write_text("".join(lines))
    (tmp_path / "STS.input.track1.ar-ar.txt").write_text("cat dog\tdog cat\nred\tblue\n")
    (tmp_path / "STS.gs.track1.ar-ar.txt").write_text("5\n1\n")
    chosen = changed(experiment, {"selection.by": "stsb", "selection.data_root": str(tmp_path)})
    setting = prepare(chosen, workspace, Embedding(local=True)).setting
    assert setting.dev.select == f"xsts_{figure}_spearman_cosine_x100"
    method = load_method("crosslingual")
    values = {"batch_size": 16, "unit": 1, "bottleneck": 0, "recipe": "single"}
    folder = run(method.plan(hyper_parameters(method, values), setting), workspace, where=WHERE)
    assert {setting.dev.select, "translation_mean_accuracy"} <= set(read_manifest(folder)["metrics"])


def test_train_and_export_from_the_command_line(
    experiment: Experiment, tmp_path: Path, tiny_model: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    flags = {
        "root": tmp_path / "runs",
        "teacher": tiny_model,
        "student": tiny_model,
        "parallel": experiment.get(Parallel).corpora,
        "set": "parallel.held_out=20",
        "max-length": 16,
        "distil-budget": 32,
        "compute": "float32",
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    given = ("batch_size=16", "unit=2", "bottleneck=8", "recipe=single")
    values = [part for value in given for part in ("--set", value)]
    assert main(["train", "crosslingual", "--local", *arguments, *values]) == 0
    (folder,) = (tmp_path / "runs" / "stages").glob("student-*/")
    assert main(["export", str(folder), str(tmp_path / "out"), "--root", str(tmp_path / "runs")]) == 0
    assert SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(["the cat"]).shape == (1, 32)


def test_missing_translations_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "crosslingual", "--local", "--root", str(tmp_path)]) == 2
    assert "crosslingual must be given sentences with their translations" in capsys.readouterr().err
    with pytest.raises(BadInput, match="LANGUAGE=CORPUS"):
        parallel_corpora("pairs.tsv")
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("x\n")
    with pytest.raises(BadInput, match="columns, header and delimiter are for corpora in one file"):
        parallel_corpora(f"de={tmp_path}", schema=Schema("source: 2, target: 1", owner="parallel"))
