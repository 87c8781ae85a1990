"""Parts of the package that are found by their files' names."""

import errno
import os
from pathlib import Path

import pytest

from stillhouse.cli.main import main
from stillhouse.core.modules import module_names
from stillhouse.search import samplers


def test_modules_are_listed_without_importing_them(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("raise ImportError")
    (tmp_path / "a.py").touch()
    (tmp_path / "c.txt").touch()
    assert module_names([str(tmp_path)]) == ["a", "b"]
    (tmp_path / "empty").mkdir()
    assert module_names([str(tmp_path / "empty")]) == []


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a free file descriptor a command ends with one message."""
    folder, listdir = Path(samplers.__file__).parent, os.listdir

    def refusing(path: str = ".") -> list[str]:
        if Path(path) == folder:
            raise OSError(errno.EMFILE, "Too many open files", str(folder))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refusing)
    assert main(["fields"]) == 2
    assert "Too many files are open: raise the limit" in capsys.readouterr().err
