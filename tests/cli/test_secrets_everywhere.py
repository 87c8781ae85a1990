"""A secret at every entrance, and none in anything that is printed or written."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_inputs import TEXTS  # type: ignore[import-not-found]
from loopback import Loopback, loopback, status
from object_store import ObjectStore, object_store
from patience import STUCK_S
from ray.tune.execution.class_cache import _ActorClassCache
from small_experiment import sentences

from stillhouse.cli.main import main
from stillhouse.core.redaction import CREDENTIALS
from stillhouse.search.tuner import keep_credentials_here

SECRET = "hunter2hunter2"
NOWHERE = "127.0.0.1:9"
SPACE = """
method: mse
sentences: {count: 0, held_out: 60}
budget: {distil: 64, evaluations: 1}
search:
  space: {batch_size: [8, 16]}
"""
SMALL = ["--local", "--set", "sentences.held_out=4"]


@pytest.fixture
def server() -> Iterator[Loopback]:
    """An endpoint on this machine."""
    with loopback() as running:
        yield running


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    """An object store on this machine that quotes the key which it refuses."""
    with object_store() as running:
        running.refusal = f"the secret {SECRET} of k is unknown"
        yield running


def leaks(folder: Path, printed: str) -> list[str]:
    """Where the secret is: on the screen, in the name of a file, or in one."""
    found = ["the screen"] if SECRET in printed else []
    for path in folder.rglob("*"):
        inside = path.is_file() and SECRET.encode() in path.read_bytes()
        found += [str(path)] if inside or SECRET in path.name else []
    return found


def entrances(
    server: Loopback, store: ObjectStore, tiny_model: Path
) -> dict[str, tuple[dict[str, str], list[str], int]]:
    """Environment, command line and exit code, by the entrance of the secret."""
    model, corpus = ["--teacher", str(tiny_model)], ["--corpus", "texts.txt"]
    endpoint = ["--set", f"teacher.endpoint={server.url}", "--set", "teacher.model=m"]
    once, student = ["--set", "teacher.requests.attempts=1"], ["--student", str(tiny_model)]
    return {
        "key of an endpoint": (
            {"STILLHOUSE_API_KEY": SECRET},
            ["embed", *SMALL, *corpus, *endpoint, *student],
            0,
        ),
        "key that the endpoint repeats": (
            {"OTHER_API_KEY": SECRET},
            [
                "embed",
                *SMALL,
                *corpus,
                *endpoint,
                *once,
                "--set",
                "teacher.requests.key_variable=OTHER_API_KEY",
            ],
            2,
        ),
        "URL of an endpoint": (
            {},
            ["embed", *SMALL, *corpus, "--set", f"teacher.endpoint=http://a:{SECRET}@{NOWHERE}/v1"],
            2,
        ),
        "user of a corpus": (
            {},
            ["embed", *SMALL, *model, "--corpus", f"s3://k:{SECRET}@bucket/t.txt{store.options}"],
            2,
        ),
        "parameter of a corpus": (
            {},
            ["embed", *SMALL, *model, "--corpus", f"http://{NOWHERE}/t.txt?token={SECRET}"],
            2,
        ),
        "URL of vectors": (
            {},
            [
                "embed",
                *SMALL,
                *corpus,
                *student,
                "--set",
                f"teacher.vectors=s3://k:{SECRET}@bucket/v.parquet{store.options}",
            ],
            2,
        ),
        "URL of pairs": (
            {},
            [
                "train",
                "simcse",
                *SMALL,
                *model,
                *corpus,
                "--labelled",
                f"http://{NOWHERE}/p.jsonl?sig={SECRET}",
            ],
            2,
        ),
        "tracking URI": (
            {"MLFLOW_TRACKING_URI": f"http://ann:{SECRET}@{NOWHERE}"},
            ["compare", "--experiment", "ibkd"],
            2,
        ),
        "tracking URI of another kind": (
            {"MLFLOW_TRACKING_URI": f"ftp://ann:{SECRET}@{NOWHERE}"},
            ["sweep", "ibkd"],
            2,
        ),
        "address of a cluster": ({}, ["embed", *corpus, "--address", f"ray://ann:{SECRET}@nowhere"], 2),
        "variable that is quoted": ({"WANDB_API_KEY": SECRET}, ["train", f"{SECRET}"], 2),
        "variable in a finished run": (
            {"HF_TOKEN": SECRET},
            ["train", "mse", *SMALL, *model, *corpus, "--set", "batch_size=8", "--distil-budget", "16"],
            0,
        ),
    }


def test_a_secret_at_any_entrance_leaves_by_none(
    server: Loopback,
    store: ObjectStore,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What fails on purpose fails, what runs runs, and the logs of both say nothing of the secret."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    monkeypatch.chdir(tmp_path)
    for number, (entrance, given) in enumerate(entrances(server, store, tiny_model).items()):
        environment, words, code = given
        repeats = status(401, {"error": {"message": f"the key {SECRET} is not known"}})
        server.always = repeats if "repeats" in entrance else None
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            report = ["--json", f"report-{number}.json", "--root", f"runs-{number}"]
            assert main([*words, *report]) == code, entrance
        printed = capsys.readouterr()
        assert not leaks(tmp_path, printed.out + printed.err), entrance
    assert any(SECRET in str(headers) for _, headers in server.seen), "the endpoint itself has the key"


def test_tune_copies_no_credential_into_what_ray_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has four variables of AWS in its list."""
    for name in CREDENTIALS:
        monkeypatch.setenv(name, SECRET)
    keep_credentials_here()
    assert SECRET not in str(_ActorClassCache().get(type("Trial", (), {}))._default_options)


@pytest.mark.ray
@pytest.mark.long
def test_a_sweep_writes_no_secret_into_any_file_not_even_of_ray(
    tmp_path: Path, tiny_model: Path, ray_folder: str
) -> None:
    """Every documented variable is set; the root, what is printed and Ray's session folder are searched."""
    (tmp_path / "words.txt").write_text("\n".join(sentences(300)))
    (tmp_path / "file.yaml").write_text(SPACE)
    words = ["--space", "file.yaml", "--teacher", str(tiny_model), "--corpus", "words.txt", "--trials", "1"]
    ran = subprocess.run(
        [sys.executable, "-m", "stillhouse.cli.main", "sweep", "mse", *words, "--root", "runs"],
        cwd=tmp_path,
        env={**os.environ, **dict.fromkeys(CREDENTIALS, SECRET), "RAY_TMPDIR": ray_folder},
        capture_output=True,
        text=True,
        timeout=STUCK_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(Path(ray_folder).rglob("runtime_env_agent.log")), "Ray's logs are searched"
    assert leaks(tmp_path, ran.stdout + ran.stderr) + leaks(Path(ray_folder), "") == []


@pytest.mark.parametrize("verbose", [False, True])
def test_an_unexpected_error_tells_no_secret(
    verbose: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on the screen nor in the log file that the message names."""

    def fails(options: object) -> int:
        raise RuntimeError(f"no answer of https://ann:{SECRET}@{NOWHERE}/x?token={SECRET}")

    monkeypatch.setattr("stillhouse.cli.store.run", fails)
    assert main(["store", "ls", "--root", str(tmp_path), *(["-v"] if verbose else [])]) == 1
    printed = capsys.readouterr().err
    assert "https://***@127.0.0.1:9" in printed and not leaks(tmp_path, printed)
    assert verbose or any("Traceback" in path.read_text() for path in (tmp_path / "logs").iterdir())
