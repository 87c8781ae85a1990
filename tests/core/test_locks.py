"""Locks on file systems other than a local disk, by the rules of their kernels."""

import errno
import fcntl
import os
from pathlib import Path
from typing import IO

import pytest
from small_experiment import sentences

import stillhouse
from stillhouse.cli.main import main

PACKAGE = Path(stillhouse.__file__).parent
taken = fcntl.flock


def on_nfs4(file: IO[str], kind: int) -> None:
    """Take a lock as NFS 4 does: shared on what can be read, alone on what can be written."""
    mode = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
    if mode == (os.O_WRONLY if kind & fcntl.LOCK_SH else os.O_RDONLY):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    taken(file, kind)


@pytest.fixture
def command(tmp_path: Path, tiny_model: Path) -> list[str]:
    (tmp_path / "texts.txt").write_text("\n".join(sentences(60)))
    words = ["embed", "--local", "--corpus", str(tmp_path / "texts.txt"), "--teacher", str(tiny_model)]
    return [*words, "--set", "sentences.held_out=4", "--root", str(tmp_path / "runs")]


def test_one_function_takes_all_locks() -> None:
    using = [path for path in PACKAGE.rglob("*.py") if "fcntl" in path.read_text()]
    assert using == [PACKAGE / "core" / "locks.py"]


def test_commands_work_on_nfs4(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "remote").mkdir()
    monkeypatch.setattr(fcntl, "flock", on_nfs4)
    monkeypatch.setenv("STILLHOUSE_CACHE_GB", "1")
    assert main([*command, "--remote", str(tmp_path / "remote")]) == 0


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_mount_without_locks_is_refused_by_name(
    number: int, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(file: IO[str], kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuses)
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "runs")
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "must lock files" in said and "runs answered" in said and "-o flock" in said
