"""`train --local` with a remote: a second machine, with an empty disk, computes nothing again."""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import STUCK_S
from s3_server import CREDENTIALS, needs_moto, new_bucket
from safetensors.torch import load_file
from small_experiment import sentences

from stillhouse.cli.main import main
from stillhouse.core import remotes
from stillhouse.core.remotes import remote_at
from stillhouse.corpora.reading import ingest
from stillhouse.teachers.kinds import model
from stillhouse.training import checkpoint, fit, walk

Train = Callable[..., dict[str, Any]]


@pytest.fixture(
    params=[pytest.param("mounted", marks=pytest.mark.long), pytest.param("s3", marks=needs_moto)]
)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "s3":
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        return str(new_bucket())
    (tmp_path / "mounted").mkdir()
    return str(tmp_path / "mounted")


def train_slowly(command: list[str]) -> None:
    step = fit._Loop._step

    def slowly(self: Any, upcoming: Any) -> bool:
        time.sleep(0.1)
        return step(self, upcoming)

    fit._Loop._step = slowly  # type: ignore[method-assign]
    main(command)


@pytest.fixture
def command(tmp_path: Path, tiny_model: Path) -> Callable[..., list[str]]:
    """The command line of a training on a node, which is a root of its own."""
    corpus = tmp_path / "words.txt"
    corpus.write_text("\n".join(sentences(120)))
    flags = [
        *("--corpus", str(corpus), "--teacher", str(tiny_model), "--sentences", "0", "--max-length", "16"),
        *("--set", "sentences.held_out=20", "--set", "student.layers=[0]", "--compute", "float32"),
        *("--distil-budget", "320", "--evaluations", "4", "--set", "batch_size=8", "--device", "cpu"),
    ]

    def line(node: str, *more: str) -> list[str]:
        output = ["--root", str(tmp_path / node), "--json", str(tmp_path / f"{node}.json")]
        return ["train", "mse", "--local", *output, *flags, *more]

    return line


@pytest.fixture
def train(tmp_path: Path, command: Callable[..., list[str]]) -> Train:
    """Train on a node, and return the content of the `--json` file."""

    def run(node: str, *more: str, code: int = 0) -> dict[str, Any]:
        assert main(command(node, *more)) == code
        return dict(json.loads((tmp_path / f"{node}.json").read_text())) if code == 0 else {}

    return run


def weights(found: dict[str, Any]) -> bytes:
    return (Path(found["folder"]) / "student.safetensors").read_bytes()


def nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("this has been computed already")

    monkeypatch.setattr(walk, "_train", refuse)
    monkeypatch.setattr(model, "in_process", lambda *_: refuse())
    monkeypatch.setattr(ingest, "read_texts", refuse)


def test_an_empty_node_computes_nothing_again(
    url: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = train("one", "--remote", url)
    nothing_is_computed(monkeypatch)
    monkeypatch.setenv("STILLHOUSE_REMOTE", url)
    two = train("two")
    assert Path(two["folder"]).is_relative_to(tmp_path / "two")
    assert weights(two) == weights(one) and two["metrics"] == one["metrics"]
    name = Path(one["folder"]).name
    assert (
        main(["export", name, str(tmp_path / "export"), "--root", str(tmp_path / "3"), "--remote", url]) == 0
    )
    assert load_file(tmp_path / "export" / "model.safetensors")


@pytest.mark.parametrize(
    "url",
    ["mounted", pytest.param("s3", marks=[needs_moto, pytest.mark.long])],
    indirect=True,
)
@pytest.mark.usefixtures("one_thread")
def test_training_that_is_killed_here_goes_on_there_to_the_same_weights(
    url: str,
    train: Train,
    command: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    straight = train("straight")
    start: Any = multiprocessing.get_context("spawn" if "://" in url else "fork")  # S3's client has threads.
    process = start.Process(target=train_slowly, args=[command("one", "--remote", url)])
    process.start()
    name, remote = Path(straight["folder"]).name, remote_at(url)
    assert remote is not None
    deadline = time.monotonic() + STUCK_S
    while not (listed := remote.listed(f"checkpoints/{name}")):
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.join()
    published = max(checkpoint.step_of(Path(file)) for file in listed)
    assert 0 < published < 40 and not remote.has(f"stages/{name}")
    steps: list[int] = []
    step = fit._Loop._step

    def noted(self: Any, upcoming: Any) -> bool:
        steps.append(self.progress.step)
        return step(self, upcoming)

    monkeypatch.setattr(fit._Loop, "_step", noted)
    monkeypatch.setattr(model, "in_process", lambda *_: pytest.fail("nothing is embedded again"))
    two = train("two", "--remote", url)
    assert steps[0] >= published and steps[-1] == 39, "it goes on from there"
    assert weights(two) == weights(straight) and two["metrics"] == straight["metrics"]


def test_a_remote_that_cannot_be_used_is_refused_at_once(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    for address, message in (
        ("ftp://host/folder", "must begin with s3://"),
        (str(tmp_path / "nowhere"), "there is no folder"),
        ("s3://a-bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1", "must answer"),
    ):
        if "9&scheme" in address:  # The client of S3 gives up after six seconds.
            monkeypatch.setattr(remotes, "_ANSWER_SECONDS", 1.0)
        train("one", "--remote", address, code=2)
        printed = capsys.readouterr().err
        assert message in printed and printed.count("stillhouse:") == 1, printed
    assert time.monotonic() - began < 60 and not (tmp_path / "one").exists(), "nothing is left behind"


@pytest.mark.parametrize("url", ["mounted"], indirect=True)
def test_a_damaged_artifact_of_the_remote_is_named(
    url: str, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train("one", "--remote", url)
    (student,) = (tmp_path / "mounted" / "stages").glob("*/*/student.safetensors")
    student.write_bytes(student.read_bytes()[:-1] + b"?")
    capsys.readouterr()
    train("two", "--remote", url, code=2)
    printed = capsys.readouterr().err
    assert "student.safetensors of" in printed and "Remove that folder from the remote" in printed
    assert not list((tmp_path / "two" / "stages").glob("*/manifest.json"))
