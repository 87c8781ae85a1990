"""`train`, `evaluate` and `export` from the command line, in one plain process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row
from safetensors.torch import load_file

from stillhouse.cli.main import main, parser
from stillhouse.cli.parsed_values import asked
from stillhouse.sweeps.session import where_of
from stillhouse.teachers.weights import resolve_model

WORDS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()


def corpus(folder: Path) -> Path:
    random = np.random.default_rng(0)
    lines = {" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(140)}
    path = folder / "words.txt"
    path.write_text("\n".join(sorted(lines)))
    return path


SELECTS = "agreement_spearman_cosine"
STATIC = ["--student-kind", "static", "--set", "student.dim=16", "--set", "batch_size=16"]
RECURRENT = ["--student-kind", "recurrent", "--set", "student.unit=2", "--set", "student.bottleneck=8"]


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> list[str]:
    """One workspace, corpus and teacher for all commands."""
    folder = tmp_path_factory.mktemp("cli")
    return [
        *("--root", str(folder / "runs"), "--corpus", str(corpus(folder)), "--teacher", str(tiny_model)),
        *("--sentences", "0", "--set", "sentences.held_out=20", "--max-length", "16", "--compute", "float32"),
    ]


@pytest.fixture(scope="module")
def train(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Train on 64 examples and return the content of the `--json` file."""
    report = tmp_path_factory.mktemp("report") / "report.json"

    def run(method: str, *more: str) -> dict[str, Any]:
        budget = ["--distil-budget", "64", "--evaluations", "2"]
        assert main(["train", method, "--local", "--json", str(report), *flags, *budget, *more]) == 0
        read: dict[str, Any] = json.loads(report.read_text())
        return read

    return run


@pytest.fixture(scope="module")
def other_student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DistilBERT with its own vocabulary and 2 layers of size 24: it shares nothing with the teacher."""
    import torch
    from transformers import BertTokenizer, DistilBertConfig, DistilBertModel

    folder = tmp_path_factory.mktemp("other")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *reversed(WORDS)]
    BertTokenizer(vocab={word: row for row, word in enumerate(words)}, model_max_length=64).save_pretrained(
        folder
    )
    config = DistilBertConfig(
        vocab_size=len(words), dim=24, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=64
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        DistilBertModel(config).save_pretrained(folder)
    return folder


def pairs() -> list[tuple[str, str]]:
    return [(a, b) for a in WORDS[:6] for b in WORDS[6:14]]


def figures(arguments: list[str], report: Path) -> dict[str, float]:
    assert main([*arguments, "--json", str(report)]) == 0
    read: dict[str, float] = json.loads(report.read_text())["metrics"]
    return read


def test_the_figures_before_and_after_training_are_those_of_evaluate(
    train: Callable[..., dict[str, Any]], flags: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    low = ["--set", "batch_size=16", "--compute", "auto"]
    kept = Path(flags[1]) / "figures"
    before = set(kept.glob("*.json"))
    report = train("mse", *low)
    manifest = json.loads((Path(report["folder"]) / "manifest.json").read_text())
    assert manifest["start"] == report["start"]
    printed = capfd.readouterr()
    assert f"{report['start'][SELECTS]:.4f} before training" in printed.out
    measured = figures(["evaluate", report["folder"], *flags, *low[2:]], tmp_path / "e.json")
    assert measured == {name: report["metrics"][name] for name in measured}
    assert (measured[SELECTS] < report["start"][SELECTS]) == ("worse than before training" in printed.err)
    other = train("mse", *low, "--set", "learning_rate=0.003")
    assert other["start"] == report["start"] and other["folder"] != report["folder"]
    worse = other["metrics"][SELECTS] < other["start"][SELECTS]
    assert worse == (f"worse than before training: {SELECTS}" in capfd.readouterr().err)
    assert worse or measured[SELECTS] < report["start"][SELECTS], "one of them shows it"
    assert len(set(kept.glob("*.json")) - before) == 1, "both start from one student, which is measured once"


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("ibkd", ["--set", "distil_batch_size=16"]),
        ("ibkd", ["--set", "distil_batch_size=16", "--set", "kernel=imq", "--preset", "repo"]),
        ("ckd", ["--set", "batch_size=16", "--set", "bank_size=32"]),
        ("mse", ["--set", "batch_size=16", "--layers", "last"]),
        ("pkd", ["--set", "batch_size=16"]),
        ("ckd", [*STATIC, "--set", "bank_size=32", "--set", "keep_projection=true"]),
        ("hpd", [*STATIC, "--set", "student.start=contextless", "--set", "dim=8"]),
        ("mse", [*RECURRENT, "--set", "batch_size=16", "--labelled", "LABELLED", "--finetune-budget", "32"]),
        ("simcse", ["--set", "batch_size=16", "--labelled", "LABELLED", "--finetune-budget", "32"]),
        ("metakd", ["--set", "batch_size=16", "--labelled", "LABELLED", "--finetune-budget", "32"]),
        ("metakd", ["--set", "batch_size=16", "--labelled", "LABELLED", "--finetune-budget", "0"]),
    ],
)
def test_every_kind_of_method_trains(
    method: str, values: list[str], train: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    labelled = tmp_path / "triples.jsonl"
    rows = [{"query": f"cat {a} {b}", "passage": f"{b} {a}", "negative": f"{a} sun"} for a, b in pairs()]
    labelled.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = train(method, *(str(labelled) if value == "LABELLED" else value for value in values))
    assert (Path(report["folder"]) / "student.safetensors").is_file()
    assert -1 <= report["metrics"]["agreement_spearman_cosine"] <= 1 and report["seconds"] > 0


def test_task_training_scoring_and_export(
    train: Callable[..., dict[str, Any]],
    flags: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for split, lead in (("train", ""), ("dev", "a "), ("test-labeled", "the ")):
        lines = ["sentence\tlabel", *(f"{lead}{a} {b}\t{int(a == 'cat')}" for a, b in pairs())]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    task = ["--task", "SST-2", "--task-root", str(tmp_path)]
    small = ["--set", "hidden=8", "--set", "distil_batch_size=16"]
    report = train("sra", *task, *small, "--set", "finetune_batch_size=16", "--finetune-budget", "64")
    evaluated = figures(["evaluate", report["folder"], *flags, *task], tmp_path / "report.json")
    assert evaluated["sst2_accuracy"] == report["metrics"]["sst2_accuracy"]
    assert "agreement_spearman_cosine" in evaluated
    assert 0 <= report["metrics"]["sst2_accuracy"] <= 1
    assert main(["export", report["folder"], str(tmp_path / "out"), "--root", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["train", "sra", "--local", *flags, *small]) == 2
    assert "sra must be given word vectors" in capsys.readouterr().err


def test_fine_tuned_teacher_logits_on_augmented_rows_with_fractions_of_labels(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BiLSTM_KD + TS on pairs at two fractions, then on the teacher's cosines; both are scored untuned."""
    for split, lead, rows in (("train", "", None), ("dev", "red ", 40)):
        lines = ["question1\tquestion2\tis_duplicate"]
        lines += [
            f"the {lead}{a} {b}\ta {lead}{b} {c}\t{int(a == c)}" for a, b in pairs() for c in (a, "sun")
        ]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines[:rows]) + "\n")
    synset = "".join(f"  - {noun}\n" for noun in WORDS[:8])
    (tmp_path / "noun.act.yaml").write_text(f"00000001-n:\n  members:\n{synset}  partOfSpeech: n\n")
    report = tmp_path / "report.json"
    task = ["--task", "QQP", "--task-root", str(tmp_path), "--finetune-budget", "48", "--evaluations", "2"]
    small = ["--set", "hidden=8", "--set", "batch_size=16", "--set", "teacher_batch_size=16"]
    train = ["train", "bilstm_kd", "--local", "--json", str(report), *flags, *task, *small]
    varied = ["--set", "augment=ts", "--fractions", "1,0.5"]
    assert main([*train, *varied]) == 2 and "--wordnet" in capsys.readouterr().err
    assert main([*train, *varied, "--set", f"task.wordnet={tmp_path}", "--set", "task.copies=2"]) == 0
    whole, half = json.loads(report.read_text())
    assert (whole["fraction"], half["fraction"]) == (1, 0.5) and whole["folder"] != half["folder"]
    assert half["rows"]["teacher"] * 2 == whole["rows"]["teacher"] == 96
    assert half["rows"]["kd"] < whole["rows"]["kd"] and whole["rows"]["kd"] > 96
    assert "fraction" in capsys.readouterr().out
    assert main([*train, "--set", "fits=cosines"]) == 0
    trained = json.loads(report.read_text())
    assert set(trained["metrics"]) >= {"qqp_cosine_accuracy", "qqp_cosine_f1"}
    evaluated = figures(["evaluate", trained["folder"], *flags, *task], report)
    assert evaluated["qqp_cosine_f1"] == pytest.approx(trained["metrics"]["qqp_cosine_f1"])
    for wrong in (
        ["--fractions", "1,2"],
        ["--fractions", "0.5,0.5"],
        ["--fractions", "1", "--fraction", "0.5"],
    ):
        assert main([*train, *wrong]) == 2


def test_a_student_with_another_architecture_dimension_and_tokenizer(
    train: Callable[..., dict[str, Any]], other_student: Path, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    report = train("mse", "--student", str(other_student), "--set", "batch_size=16")
    assert main(["export", report["folder"], str(tmp_path / "out"), "--root", str(tmp_path)]) == 0
    exported = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert exported.encode(["the cat"]).shape == (1, 24)
    assert exported.tokenizer.get_vocab()["cat"] == 4 + len(WORDS)


def test_a_live_teacher_with_another_dimension_and_tokenizer(
    train: Callable[..., dict[str, Any]], other_student: Path
) -> None:
    """Its layers meet those of the student through projections, which the next stage does not have."""
    report = train(
        "pkd", "--student", str(other_student), "--set", "batch_size=16", "--set", "student.keep=2"
    )
    folder = Path(report["folder"])
    trained = load_file(folder / "objective.safetensors")
    assert {name: tuple(weight.shape) for name, weight in trained.items()} == {
        "mse.projection.weight": (32, 24),
        "patient.projections.0.weight": (32, 24),
    }
    assert not any("projection" in name for name in load_file(folder / "student.safetensors"))
    assert set(report["gradient_shares"]["pkd"]) == {"mse", "layers"}


@pytest.mark.parametrize(
    ("method", "values"),
    [("ibkd", ["--set", "distil_batch_size=16"]), ("hpd", ["--set", "dim=8", "--set", "batch_size=16"])],
)
def test_a_static_second_teacher_with_another_vocabulary(
    method: str,
    values: list[str],
    train: Callable[..., dict[str, Any]],
    other_student: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    from stillhouse.students.export.sentence_transformers import export_student
    from stillhouse.students.static import StaticStudent

    table = StaticStudent(resolve_model(str(tiny_model)), dim=12)
    export_student(table, table.tokenizer.path, 16, tmp_path / "table")
    models = ["--teacher", str(tmp_path / "table"), "--student", str(other_student)]
    report = train(method, *models, *values)
    assert -1 <= report["metrics"]["agreement_spearman_cosine"] <= 1


def test_evaluate_accepts_every_form_of_model_name(
    train: Callable[..., dict[str, Any]], flags: list[str], tmp_path: Path, tiny_model: Path
) -> None:
    trained = train("mse", "--set", "batch_size=16")
    folder, report = Path(trained["folder"]), tmp_path / "report.json"
    assert main(["export", str(folder), str(tmp_path / "out"), "--root", str(tmp_path)]) == 0
    quality = "agreement_spearman_cosine"
    for name in (str(folder), folder.name, str(tmp_path / "out")):
        measured = figures(["evaluate", name, *flags], report)
        assert measured[quality] == pytest.approx(trained["metrics"][quality], abs=1e-3)
    comparison = ["--against", str(tiny_model), "--resamples", "100"]
    assert figures(["evaluate", folder.name, *comparison, *flags], report) == measured
    against = json.loads(report.read_text())["against"]
    one = against["suites"]["dev"]["dev"][quality]
    assert one["model"] == pytest.approx(measured[quality]) and one["other"] > 0.99 and one["p"] < 0.05
    assert one["share"] == pytest.approx(one["model"] / one["other"])


def test_the_test_suite_is_opened_only_on_request_and_counted(
    train: Callable[..., dict[str, Any]], flags: list[str], tmp_path: Path
) -> None:
    root, student = Path(flags[1]), train("mse", "--set", "batch_size=16")["folder"]
    dev = figures(["evaluate", student, *flags], tmp_path / "dev.json")
    assert not (root / "openings.jsonl").exists()
    final = figures(["evaluate", student, *flags, "--final"], tmp_path / "test.json")
    assert final != dev and json.loads((tmp_path / "test.json").read_text())["split"] == "test"
    assert len((root / "openings.jsonl").read_text().splitlines()) == 1


def test_a_live_teacher_must_match_the_student(
    flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other_root = ["--root", str(tmp_path / "runs"), *flags[2:]]
    assert main(["train", "pkd", "--local", *other_root, "--set", "student.keep=1"]) == 2
    assert "layers to match" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "stores").exists()


@each_row(
    ("method", "values", "message"),
    [
        ("ibkd", STATIC[:2], "a static student, which has no layers between X and S"),
        ("pkd", STATIC[:2], "pkd matches the layers of a transformer"),
        ("sra", [*STATIC[:2], "--words", "count"], "sra trains a BiLSTM of its own"),
        (
            "hpd",
            RECURRENT,
            "the method sets projection_activation, which RecurrentStudent does not have",
        ),
        (
            "mse",
            [*STATIC, "--set", "layers=[0]"],
            "the method sets layers, which StaticStudent does not have",
        ),
        (
            "mse",
            [*STATIC, "--set", "student.keep=2"],
            "`student.keep` goes with a student of the kind transformer",
        ),
        ("mse", ["--set", "student.dim=8"], "`student.dim` goes with a student of the kind static"),
        ("mse", RECURRENT[:2], "student.unit >= 1 for a recurrent student"),
        ("mse", [*RECURRENT[:3], "student.unit=3"], "layers of the base % unit = 0"),
        ("mse", ["--student-kind", "statistic"], "student.kind in"),
    ],
)
def test_impossible_student_kinds_are_refused_before_any_work(
    method: str,
    values: list[str],
    message: str,
    flags: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert main(["train", method, "--local", "--root", str(tmp_path / "runs"), *flags[2:], *values]) == 2
    report = capsys.readouterr().err.splitlines()
    assert len(report) == 1 and message in report[0]
    assert not (tmp_path / "runs" / "corpora").exists()


@pytest.mark.parametrize("name", ["./nowhere", "runs/stages/mse-0000000000000000"])
def test_a_missing_model_is_reported(name: str, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", name, *flags]) == 2
    assert name.split("/")[-1] in capsys.readouterr().err


def test_an_unfinished_stage_is_reported(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text("{}")
    for command in (["evaluate", str(tmp_path)], ["export", str(tmp_path), str(tmp_path / "out")]):
        assert main([*command, *(flags if command[0] == "evaluate" else flags[:2])]) == 2
        assert "unfinished" in capsys.readouterr().err


def test_a_student_that_diverges_is_one_line_and_exit_code_1(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    values = ["--distil-budget", "160", "--set", "batch_size=16", "--set", "learning_rate=1e18"]
    assert main(["train", "mse", "--local", *flags, *values]) == 1
    *before, last = capsys.readouterr().err.splitlines()
    assert "Diverged: mse: " in last and not any("failed" in line or "Traceback" in line for line in before)
    assert "must be finite" in last or "collapsed" in last


@each_row(
    ("more", "threads"),
    [
        (["--local"], 0),
        (["--local", "--workers", "2"], 1),
        (["--local", "--cpus-per-worker", "3"], 3),
        ([], 1),
        (["--cpus-per-worker", "2"], 2),
    ],
)
def test_one_process_on_its_own_takes_all_cores(more: list[str], threads: int) -> None:
    options = parser().parse_args(["train", "ibkd", *more])
    assert where_of(asked(options), "cpu", local=options.local).threads == threads


def test_no_cpus_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ibkd", "--local", *flags, "--cpus-per-worker", "0"]) == 2
    assert "cpus_per_worker > 0" in capsys.readouterr().err
