"""Artifacts: whole or absent, whatever kills the writer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stillhouse.core.artifacts import (
    Workspace,
    default_root,
    locked,
    read_json,
    read_manifest,
    remove,
    remove_leftovers,
    replacing,
    write_atomically,
    write_json,
    write_manifest,
)
from stillhouse.core.errors import BadInput
from stillhouse.plan.data import TextTable

PLATFORM = str(Path(__file__).resolve().parents[2] / "platform")


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_bytes(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="room on the disk"), replacing(tmp_path / "file"):
        raise OSError(28, "No space left on device")


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".export.1.tmp").mkdir()
    for name in (".export.1.tmp/half", ".part.2.tmp", "part", "part.tmp"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["part", "part.tmp"]


def test_a_folder_without_manifest_is_unfinished(tmp_path: Path) -> None:
    workspace, table = Workspace(tmp_path), TextTable("abc")
    workspace.path(table).mkdir(parents=True)
    assert not workspace.finished(table)
    with pytest.raises(BadInput, match="unfinished"):
        read_manifest(workspace.path(table))
    write_manifest(workspace.path(table), {"rows": 1})
    assert workspace.finished(table)
    assert workspace.listed("corpora") == [workspace.path(table)]
    remove(workspace.path(table))
    assert not workspace.path(table).exists()


def test_json_that_is_none_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(BadInput, match="must be JSON"):
        read_json(tmp_path / "x.json")
    write_json(tmp_path / "x.json", {"a": 1})
    assert read_json(tmp_path / "x.json") == {"a": 1}


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    program = (
        "import sys, time; from pathlib import Path; from stillhouse.core.artifacts import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(lock)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PLATFORM},
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    with pytest.raises(BadInput, match="must be free"), locked(lock, wait=False):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with locked(lock, wait=False):
        pass


def test_the_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STILLHOUSE_ROOT", raising=False)
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert default_root() == Path("runs")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert default_root() == Path.home() / "stillhouse-runs"
    monkeypatch.setenv("STILLHOUSE_ROOT", str(tmp_path))
    assert default_root() == tmp_path


def test_what_is_written_is_readable_as_the_umask_says(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_atomically(tmp_path / "file", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
