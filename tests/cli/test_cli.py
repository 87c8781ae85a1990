"""The command line: fast help, one message and exit code 2 for bad input, no partial output."""

import errno
import json
import os
import platform
import subprocess
import sys
import time
from argparse import Namespace
from importlib import metadata
from pathlib import Path

import pytest
from rows import each_row

import stillhouse
from stillhouse.cli import store
from stillhouse.cli.arguments import FLAGS
from stillhouse.cli.main import main, parser
from stillhouse.cli.method_values import runs_of
from stillhouse.cli.parsed_values import experiment_from, follow_sweep, settings
from stillhouse.core.errors import BadInput
from stillhouse.core.notes import write_note
from stillhouse.experiments.fields import fields
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences

ROOT = Path(__file__).resolve().parents[2]
JOBS = sorted(path.name for path in (ROOT / "jobs").glob("*.py"))


@each_row(
    "command",
    [
        "sweep",
        "train",
        "embed",
        "mine",
        "evaluate",
        "compare",
        "export",
        "verify",
        "store",
        "presets",
        "fields",
    ],
)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"examples:\n  stillhouse {command}" in capsys.readouterr().out


@each_row("job", JOBS)
def test_every_job_runs_from_the_checkout(job: str) -> None:
    ran = subprocess.run(
        [sys.executable, f"jobs/{job}", "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0 and "examples:" in ran.stdout


def test_versions_are_printed_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    shown = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert shown["stillhouse"] == stillhouse.__version__ and shown["python"] == platform.python_version()
    assert shown["torch"] == metadata.version("torch") and shown["ray"] == metadata.version("ray")


def test_nothing_heavy_is_imported_for_help() -> None:
    program = (
        "import sys, stillhouse.cli.main as c; c.parser()\n"
        "heavy = ('torch', 'ray', 'mlflow', 'transformers', 'numpy', 'optuna')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    started = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_is_not_a_failure(unbuffered: str) -> None:
    ran = subprocess.Popen(
        [sys.executable, "-m", "stillhouse.cli.main", "fields"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform"), "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert ran.stdout is not None and ran.stderr is not None
    ran.stdout.close()
    assert ran.stderr.read() == b""
    assert ran.wait(timeout=240) == 141
    ran.stderr.close()


def test_every_experiment_flag_sets_a_field_and_the_other_fields_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = parser().parse_args(["embed"])
    assert all(path in fields() and hasattr(flags, name) for name, path in FLAGS.items())
    assert main(["fields"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(fields())
    assert main(["fields", "pairs.mining"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 9
    assert main(["fields", "pairs.mining.range_maxx"]) == 2
    assert "Did you mean pairs.mining.range_max" in capsys.readouterr().err


@each_row(
    ("path", "near"),
    [
        ("prompts", "teacher.prompts or student.prompts?"),
        ("promts", "teacher.prompts or student.prompts?"),
        ("range_max", "pairs.mining.range_max?"),
        ("dev_poool", "collection.dev_pool?"),
        ("teacher.prompts.querry", "teacher.prompts.query or"),
        ("sentense", "sentences or"),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest(
    path: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where only a part of its path is given, or a part is misspelt."""
    assert main(["fields", path]) == 2
    assert f"unknown field `{path}`. Did you mean {near}" in capsys.readouterr().err
    # A value cannot be set for a group of fields: only fields are suggested.
    assert main(["train", "ibkd", "--local", "--set", f"{path}.x=1"]) == 2
    said = capsys.readouterr().err
    assert "`stillhouse fields` lists them" in said
    if "Did you mean " in said:
        suggested = said.partition("Did you mean ")[2].partition("?")[0].split(" or ")
        assert set(suggested) <= set(fields())


def test_a_field_can_be_set_by_path_flag_or_file() -> None:
    options = parser().parse_args(["train", "ibkd", "--set", "pairs.mining.range_max=100", "--pairs", "7"])
    experiment = experiment_from(options, {"pairs": {"negatives": 3, "count": 9}, "max_length": 32})
    pairs = experiment.get(Pairs)
    assert (pairs.mining.range_max, pairs.count, pairs.negatives) == (100, 7, 3)
    assert experiment.max_length == 32
    both = parser().parse_args(["train", "ibkd", "--set", "pairs.count=8", "--pairs", "7"])
    with pytest.raises(BadInput, match=r"by its flag or by --set.*pairs\.count"):
        experiment_from(both)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A workspace with a finished sweep `mine` of ibkd."""
    folder = tmp_path / "runs" / "sweeps" / "mine"
    write_note(folder / "sweep.json", {"search": ["random", ["quality"], "none", 2]})
    write_note(folder / "export.json", {})
    (folder / "experiment.yaml").write_text(
        "method: ibkd\npreset: dense_retrieval\nvalues: {gamma: 0.25}\nseed: 3\nmax_length: 32\n"
        "sentences: {corpus: a.txt, count: 7}\npairs: {path: pairs.jsonl, negatives: 1, count: 9}\n"
        "search: {space: {beta1: [0.5, 1.0]}}\n"
    )
    return tmp_path / "runs"


def following(root: Path, *words: str) -> Namespace:
    options = parser().parse_args([*words, "--root", str(root)])
    follow_sweep(options)
    return options


def test_a_sweep_of_the_workspace_goes_before_a_method_and_flags_change_it(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = experiment_from(following(begun, "train", "mine", "--sentences", "5"))
    assert plain.get(Sentences) == Sentences("a.txt", count=5) and plain.seed == 3
    assert capsys.readouterr().err == "as sweep mine: 32 tokens, 1 negative, 5 sentences\n"
    other = experiment_from(following(begun, "train", "mse", "--like", "mine", "--parallel", "de=de.tsv"))
    assert [kind.key for kind in other.kinds] == ["parallel"] and other.seed == 3
    files = ["--corpus", "b.txt", "--labelled", "c.jsonl"]
    owns = experiment_from(following(begun, "evaluate", str(begun / "sweeps" / "mine" / "export"), *files))
    assert owns.get(Sentences) == Sentences("b.txt") and owns.get(Pairs) == Pairs("c.jsonl", negatives=1)
    (run,) = runs_of(following(begun, "doctor", "mine"))
    assert (run.method, run.preset, run.values) == ("ibkd", "dense_retrieval", {"gamma": 0.25})
    (run,) = runs_of(following(begun, "doctor", "mse", "--like", "mine"))
    assert (run.method, run.preset, run.values) == ("mse", "paper", {})
    (begun / "sweeps" / "mine").rename(begun / "sweeps" / "ckd")
    assert following(begun, "sweep", "ckd", "--trials", "40").name == "ckd"
    assert runs_of(following(begun, "train", "ckd"))[0].method == "ibkd"


@each_row(
    ("words", "said"),
    [
        (["train", "--like", "mien"], "--like must name a sweep of the workspace.*Did you mean mine"),
        (["train", "--like", "../sweeps/mine"], "--like must name a sweep of the workspace"),
        (["sweep", "--like", "mine"], "has delivered its student.*resumes it"),
        (["evaluate", "x", "--like", "mine"], "a file experiment.yaml.*Another version"),
        (["doctor", "mime"], "unknown method or sweep 'mime'. Did you mean .*mine"),
        (["doctor", "msee"], "unknown method or sweep 'msee'. Did you mean .*mse"),
    ],
)
def test_what_is_no_sweep_to_follow_is_refused(begun: Path, words: list[str], said: str) -> None:
    folder = begun / "sweeps" / "mine"
    if "delivered" in said:
        (folder / "export.json").unlink()
    if "version" in said:
        (folder / "experiment.yaml").unlink()
    with pytest.raises(BadInput, match=said):
        following(begun, *words)


def test_the_rule_of_comparing_holds_for_the_command_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules: list[str | None] = []
    monkeypatch.delenv("STILLHOUSE_VERIFY", raising=False)

    def run(options: object) -> int:
        rules.append(os.environ.get("STILLHOUSE_VERIFY"))
        return 0

    monkeypatch.setattr(store, "run", run)
    root = ["--root", str(tmp_path)]
    assert main(["store", "ls", *root, "--verify", "once"]) == 0 == main(["store", "ls", *root])
    assert rules == ["once", None]
    assert main(["store", "ls", *root, "--verify", "now"]) == 2
    assert "always" in capsys.readouterr().err


def test_help_fits_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sweep", "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 60 and max(map(len, text.splitlines())) <= 120
    assert "stillhouse fields" in text


@pytest.mark.parametrize("verbose", [False, True])
def test_an_unexpected_error_is_one_line_and_exit_code_1(
    verbose: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(options: object) -> int:
        raise KeyError("a library's mistake\nwith more lines")

    monkeypatch.setattr("stillhouse.cli.store.run", fails)
    assert main(["store", "ls", "--root", str(tmp_path), *(["-v"] if verbose else [])]) == 1
    report = capsys.readouterr().err
    assert ("Traceback" in report) is verbose
    if not verbose:
        (line,) = report.splitlines()
        (log,) = (tmp_path / "logs").iterdir()
        assert line.startswith("stillhouse: failed: KeyError: ") and str(log) in line
        assert "Traceback (most recent call last)" in log.read_text() and "in fails" in log.read_text()


def test_a_full_disk_and_a_worker_error_count_as_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class FromWorker(Exception):
        cause = BadInput("`rows > 0` must hold, but got rows=0.")

    def full(options: object) -> int:
        raise RuntimeError("the writer failed") from OSError(errno.ENOSPC, "No space left", "big.npy")

    def refused(options: object) -> int:
        raise FromWorker("Traceback of a worker\n\n  many lines")

    for command, expected in ((full, "room on the disk for big.npy"), (refused, "rows > 0")):
        monkeypatch.setattr("stillhouse.cli.store.run", command)
        assert main(["store", "ls", "--root", str(tmp_path)]) == 2
        report = capsys.readouterr().err
        assert expected in report and len(report.splitlines()) == 1


def test_settings_are_parsed_as_json_where_possible() -> None:
    read = settings(["beta1=2", "kernel=imq", "layers=[0, 2]", "gamma=1e-3", "a=true", "b=True"])
    assert read == {"beta1": 2, "kernel": "imq", "layers": [0, 2], "gamma": 1e-3, "a": True, "b": True}
    with pytest.raises(BadInput):
        settings(["=3"])


def test_sts_folder_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def root_of(*flags: str, **from_file: str) -> str:
        file = {"selection": from_file} if from_file else {}
        return experiment_from(parser().parse_args(["embed", *flags]), file).selection.data_root

    monkeypatch.setenv("STILLHOUSE_DATA", str(tmp_path))
    assert root_of() == ""
    (tmp_path / "STSBenchmark").mkdir()
    for split in ("dev", "test"):
        (tmp_path / "STSBenchmark" / f"sts-{split}.csv").write_text("g\tf\ty\t1\t5.0\tA cat.\tA cat.\n")
    assert root_of() == str(tmp_path)
    assert root_of(data_root="file") == "file"
    assert root_of("--data-root", "flag", data_root="file") == "flag"
    assert root_of("--data-root", "flag", data_root="") == "", "the file leaves it out"
    assert root_of("--set", "selection.data_root=set", data_root="") == "set"


def test_presets_are_printed_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert main(["presets", "ibkd", "--json", str(report)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "estimator" in line)
    assert line.startswith("*") and "biased_l2" in line and "eq. 6" in line
    values = {value["name"]: value for value in json.loads(report.read_text())}
    assert values["gamma"]["paper"] == 0.5 and values["gamma"]["repo"] == 1.0 and values["gamma"]["differs"]
    assert not values["kernel"]["differs"]
    assert values["distil_batch_size"]["dense_retrieval"] == 128
    assert values["estimator"]["paper_source"] == "eq. 6"
    assert values["estimator"]["repo_source"] == "code: 1/(n-1)²"


def test_a_method_with_one_preset_shows_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert main(["presets", "sra", "--json", str(report)]) == 0
    assert "repo" not in capsys.readouterr().out
    assert all("repo" not in value for value in json.loads(report.read_text()))
    assert main(["presets", "ibkd", "--markdown"]) == 0
    assert "| `estimator` | biased_l2 | biased_l2 | eq. 6 | biased |" in capsys.readouterr().out


def test_listing_a_workspace_without_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "ls", "--root", str(tmp_path), "--json", str(tmp_path / "s.json")]) == 0
    assert main(["store", "verify", "--root", str(tmp_path)]) == 0
    assert main(["store", "gc", "--root", str(tmp_path)]) == 0
    assert "no stores" in capsys.readouterr().out
    assert not (tmp_path / "s.json").exists() or json.loads((tmp_path / "s.json").read_text()) == []
