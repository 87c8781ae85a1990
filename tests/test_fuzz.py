"""The fuzzer itself: inputs are the same each time, what is wrong is noticed, what was mended stays so.

`make fuzz` runs it for long; here each reader has a few inputs.
"""

import importlib
import io
import os
import signal
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.errors import BadInput

FUZZ = Path(__file__).resolve().parent.parent / "fuzz"
INPUTS = 20


@pytest.fixture(scope="module")
def fuzz() -> Iterator[dict[str, Any]]:
    """The fuzzer's modules by name; they are removed again, as their names are short."""
    sys.path.insert(0, str(FUZZ))
    sys.modules.pop("run", None)
    try:
        yield {name: importlib.import_module(name) for name in ("mutations", "targets", "run")}
    finally:
        sys.path.remove(str(FUZZ))
        for name in ("mutations", "targets", "run"):
            sys.modules.pop(name, None)


def test_nothing_but_bad_input_comes_out_of_any_reader(fuzz: dict[str, Any], tmp_path: Path) -> None:
    crashes = [
        crash
        for target in fuzz["targets"].targets()
        for number in range(len(target.seeds), len(target.seeds) + INPUTS)
        if (crash := fuzz["run"].attempt(target, 1, number, tmp_path))
    ]
    assert [(crash.target, crash.number, crash.error) for crash in crashes] == []


def zipped() -> bytes:
    """A whole zip file of one entry."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", "b")
    return stream.getvalue()


def array_of(shape: str) -> bytes:
    """The header of an array of floats."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


MENDED: dict[str, tuple[str, dict[str, bytes]]] = {
    "a JSON note within lists": ("notes", {"n.json": b"[" * 2000}),
    "a manifest within lists": ("manifests", {"manifest.json": b'{"a":' * 2000}),
    "a journal within lists": ("journals", {"journal.jsonl": b"[" * 2000 + b"\n"}),
    "metrics within lists": ("metrics logs", {"metrics.jsonl": b"[" * 2000 + b"\n"}),
    "an array with a broken header": (
        "arrays",
        {
            "a.npy": b"\x93NUMPY\x01\x00\x0a\x00{'descr'[[\n",
            "s.npy": b"\x93NUMPY\x01\x00\x0a\x00{'descr'[[\n",
        },
    ),
    "an array that is larger than any memory": (
        "arrays",
        {"a.npy": array_of("(9999999999999999999999,)"), "s.npy": array_of("(9999999999999999999999,)")},
    ),
    "a checkpoint with a broken pickle": (
        "checkpoints",
        {"checkpoints/step-000000003.pt": b"\x80\x02q\x00." + zipped()},
    ),
    "WordNet in another encoding": ("WordNet", {"noun.act.yaml": b"\xff:\n"}),
    "word vectors with broken compression": (
        "word vectors",
        {"v.txt.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + b"\xff" * 20},
    ),
}
"""Inputs from which something else than `BadInput` came once, by what was wrong with them."""


@each_row("case", MENDED)
def test_what_was_mended_stays_so(case: str, fuzz: dict[str, Any], tmp_path: Path) -> None:
    name, files = MENDED[case]
    (target,) = (each for each in fuzz["targets"].targets() if each.name == name)
    planted = fuzz["targets"].Target(name, (files,), target.read)
    crash = fuzz["run"].attempt(planted, 1, 0, tmp_path)
    assert crash is None, crash.details


@each_row(
    ("seed", "target", "number"),
    [
        (22, "databases", 108),
        (21, "FEVER", 1854),
        (21, "arrays", 560),
        (24, "arrays", 2686),
        (23, "scored text", 2680),
        (22, "weights", 23749),
        (23, "manifests", 5219),
        (31, "vectors from elsewhere", 68),
        (52, "GLUE", 339834),
        (32, "vectors from elsewhere", 495),
    ],
)
def test_inputs_that_crashed_once_do_not(
    fuzz: dict[str, Any], tmp_path: Path, seed: int, target: str, number: int
) -> None:
    (found,) = (each for each in fuzz["targets"].targets() if each.name == target)
    crash = fuzz["run"].attempt(found, seed, number, tmp_path)
    assert crash is None, crash.details


def test_the_valid_files_are_read_without_an_error(fuzz: dict[str, Any], tmp_path: Path) -> None:
    """Otherwise the inputs would be refused at the door, and test nothing."""
    refused = []
    for target in fuzz["targets"].targets():
        for number, files in enumerate(target.seeds):
            folder = tmp_path / target.name / str(number)
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            try:
                target.read(folder)
            except BadInput as error:
                refused.append((target.name, number, str(error)))
    assert refused == []


def test_an_input_is_the_same_each_time_and_another_one_by_its_number(fuzz: dict[str, Any]) -> None:
    made = fuzz["run"].made
    for target in fuzz["targets"].targets():
        numbers = range(len(target.seeds), len(target.seeds) + 20)
        inputs = [made(target, 5, number) for number in numbers]
        assert inputs == [made(target, 5, number) for number in numbers]
        assert len({str(each) for each in inputs}) > 10
        assert inputs != [made(target, 6, number) for number in numbers]


def crashing(folder: Path) -> None:
    """Be wrong in several ways, depending on the first byte."""
    first = (folder / "a").read_bytes()[:1]
    if first == b"k":
        os.kill(os.getpid(), signal.SIGKILL)
    if first == b"r":
        raise BadInput("this is refused as it should be.")
    if first == b"v":
        raise ValueError("this is not")
    while first == b"e":
        pass


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"good", "1 passed, 0 failed in"),
        (b"refused", "1 passed, 0 failed in"),
        (b"value", "ValueError in test_fuzz.py:crashing, 1 times; inputs 0"),
        (b"endless", "TooSlow in test_fuzz.py:crashing"),
        (b"killed", "the process ended with -9, 1 times; inputs 0"),
    ],
)
def test_what_is_wrong_is_printed_with_what_makes_it_again(
    fuzz: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    content: bytes,
    said: str,
) -> None:
    planted = (fuzz["targets"].Target("planted", ({"a": content},), crashing),)
    monkeypatch.setattr(fuzz["run"], "targets", lambda: planted)
    monkeypatch.setattr(fuzz["run"], "LIMIT_S", 0.2)
    ended = fuzz["run"].main(["--seed", "3", "--inputs", "1"])
    printed = capfd.readouterr().out
    assert said in printed and "seed 3" in printed
    assert ended == int(content in (b"value", b"endless", b"killed"))
    if ended:
        assert "again: make fuzz ARGS='--seed 3 --only \"planted\" --number 0'" in printed
    assert fuzz["run"].main(["--only", "unknown"]) == 2
