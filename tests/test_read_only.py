"""A workspace that cannot be written: commands that write end with one message, others still work."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, locked, write_json, write_manifest


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A workspace with an unfinished store on a read-only file system, where mounting is permitted."""
    root = tmp_path / "runs"
    Workspace(root).claim()
    texts = root / "corpora" / "words-0123456789abcdef"
    write_json(texts / "note.json", {})
    write_manifest(texts, {"rows": 0, "shards": []})
    with locked(root / "stores" / "words-0123456789abcdef.lock"):
        (root / "stores" / "words-0123456789abcdef").mkdir()
    try:
        subprocess.run(["mount", "--bind", root, root], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True, capture_output=True)
        yield root
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


@pytest.mark.parametrize("command", ["store ls", "store verify", "store gc", "verify"])
def test_commands_that_read_work(read_only: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--root", str(read_only)]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("command", ["embed --local", "train mse --local", "doctor mse"])
def test_commands_that_write_end_with_one_message(
    read_only: Path, command: str, capsys: pytest.CaptureFixture[str], tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    data = ["--corpus", str(tmp_path / "words.txt"), "--teacher", str(tiny_model)]
    assert main([*command.split(), *data, "--root", str(read_only)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Read-only file system" in line and "give another --root" in line
