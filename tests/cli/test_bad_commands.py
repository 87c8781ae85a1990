"""The table of bad command lines: each is refused in words, at once, and leaves nothing behind."""

import functools
import itertools
import os
import re
import runpy
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_inputs import write_inputs  # type: ignore[import-not-found]
from rows import each_row

from stillhouse.cli.main import COMMANDS, main, parser
from stillhouse.core.integrity import sha256_of

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10.0
"""The most time of the processor that a refusal may take, five times what a slow core takes."""
SECRET = "hunter2hunter2"
one_parser, sum_of_model = functools.cache(parser), functools.cache(sha256_of)
"""The parser and the models are the same for every command line, and take longer than most refusals."""
CHARACTERS = {"{long}": "n" * 300, "{newline}": "\n", "{escape}": "\x1b"}


def read_table() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Read the starts of commands by name, and the command lines with what is said about them."""
    lines = (Path(__file__).parent / "bad_commands.txt").read_text(encoding="utf-8").splitlines()
    starts = dict(re.findall(r"^(\$\w+): (.*)$", "\n".join(lines), re.MULTILINE))
    rows, command = [], ""
    for line in lines[next(at for at, line in enumerate(lines) if line.startswith("# ")) :]:
        if line.startswith("    "):
            rows.append((command, line.strip()))
        elif line and not line.startswith("# "):
            command = line
    return starts, rows


STARTS, TABLE = read_table()


def words_of(command: str) -> tuple[dict[str, str], list[str]]:
    """The environment and the words of a command line of the table."""
    name = command.partition(" ")[0]
    words = shlex.split(STARTS[name] + command.removeprefix(name) if name in STARTS else command)
    for short, meant in CHARACTERS.items():
        words = [word.replace(short, meant) for word in words]
    environment = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        variable, _, value = words.pop(0).partition("=")
        environment[variable] = value
    return environment, words


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Path]:
    """A folder with the inputs; what the commands import is imported once, before the clock runs."""
    import datasets  # noqa: F401
    import mlflow  # noqa: F401
    import optuna  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import sentence_transformers  # noqa: F401
    import transformers  # noqa: F401

    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, tiny_model)
    for warm in (["train", "ibkd", "--set", "beta1=-1"], ["evaluate", str(folder / "cut")]):
        main([*warm, "--root", str(tmp_path_factory.mktemp("warm"))])
    yield folder


def files_in(folder: Path) -> set[str]:
    """Every file and folder below a folder."""
    return {os.path.join(at, name) for at, *names in os.walk(folder) for name in itertools.chain(*names)}


def run(words: list[str]) -> int:
    """Run a command line, or a job, in this process."""
    if words and words[0].startswith("jobs/"):
        sys.argv = words
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        assert isinstance(ended.value.code, int)
        return ended.value.code
    return main(words)


@each_row(("command", "message"), TABLE)
def test_a_bad_command_line_is_refused_in_words(
    command: str,
    message: str,
    inputs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment, words = words_of(command)
    for name in ("STILLHOUSE_ROOT", "STILLHOUSE_DATA", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(inputs)
    monkeypatch.setitem(sys.modules, "mteb", None)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr("stillhouse.cli.main.parser", one_parser)
    monkeypatch.setattr("stillhouse.teachers.weights.sha256_of", sum_of_model)
    root = tmp_path / "runs"
    if "--root" not in words and "STILLHOUSE_ROOT" not in environment:
        words += ["--root", str(root)]
    before, begun = files_in(inputs), time.process_time()
    code = run(words)
    spent = time.process_time() - begun
    printed = capsys.readouterr()
    assert code == 2, printed
    told = printed.err.replace(f"{inputs}/", "")
    last = told[told.rindex("stillhouse: ") :]
    assert message in last, printed.err
    assert re.search(r"\b(must|needs?|unknown|no|not|goes|give|matches|reads)\b", last), "no rule is named"
    assert "Traceback" not in printed.err + printed.out
    assert SECRET not in printed.err + printed.out
    assert spent < SECONDS, f"{spent:.1f} s"
    assert files_in(inputs) == before, "it wrote outside of the workspace"
    for path in map(Path, files_in(root)):
        assert ".tmp" not in path.name, "half-written files stay"
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_the_table_is_long_and_knows_every_command() -> None:
    commands = [command for command, _ in TABLE]
    assert len(commands) >= 250 and len(set(commands)) == len(commands)
    first = {words[0] for words in (words_of(command)[1] for command in commands) if words}
    names = {command.__name__.rpartition(".")[2] for command in COMMANDS}
    assert names <= first and {f"jobs/{job.name}" for job in (ROOT / "jobs").glob("*.py")} <= first


def test_nothing_at_all_is_refused_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND must be given" in capsys.readouterr().err
