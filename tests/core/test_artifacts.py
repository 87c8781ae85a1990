"""Artifacts are complete or absent, however the writer dies."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.cli.main import main
from stillhouse.core import console
from stillhouse.core.artifacts import (
    FORMAT,
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
from stillhouse.core.console import never_silent
from stillhouse.core.errors import BadInput, Hindered
from stillhouse.values.data import TextTable

PLATFORM = str(Path(__file__).resolve().parents[2] / "platform")


def test_a_failed_write_keeps_the_old_file_and_leaves_no_temporary_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_bytes(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_who_waits_for_another_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_JUST_BEGUN_S", 0.0)
    monkeypatch.setattr(console, "SILENT_S", 0.2)
    lock, done = tmp_path / "stores" / "words-12.lock", threading.Event()

    def wait() -> None:
        with never_silent(), locked(lock):
            done.set()

    with locked(lock):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not done.wait(1.5)
    waiting.join(30)
    assert done.is_set()
    assert "waiting for another command, which makes stores/words-12, for" in capsys.readouterr().err


def test_a_full_disk_is_reported_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="room on the disk"), replacing(tmp_path / "file"):
        raise OSError(28, "No space left on device")


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
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


def test_invalid_json_is_reported_in_plain_words(tmp_path: Path) -> None:
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


def test_written_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_atomically(tmp_path / "file", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


# The workspace's format.


def test_a_new_workspace_records_its_format_before_any_content(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    Workspace(root).check()
    assert not root.exists()
    Workspace(root).path(TextTable("abc"))
    assert os.listdir(root) == ["workspace.json"]
    assert read_json(root / "workspace.json") == {"format": FORMAT}
    Workspace(root).check()


@each_row("kind", ["corpora", "stages", "sweeps"])
def test_a_workspace_of_the_first_version_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / kind / "ibkd").mkdir(parents=True)
    (tmp_path / "mlflow.db").touch()
    for use in (
        lambda: Workspace(tmp_path).check(),
        lambda: Workspace(tmp_path).claim(),
        lambda: Workspace(tmp_path).path(TextTable("abc")),
        lambda: Workspace(tmp_path).listed("stores"),
    ):
        with pytest.raises(BadInput, match=r"but .* holds artifacts but no workspace\.json.*version 0\.1"):
            use()
    assert sorted(os.listdir(tmp_path)) == sorted([kind, "mlflow.db"])


@each_row("content", ['{"format": 2}', '{"format": "3"}', "{", "[]"])
def test_another_format_is_refused_even_without_artifacts(tmp_path: Path, content: str) -> None:
    (tmp_path / "workspace.json").write_text(content)
    with pytest.raises(BadInput, match=r"has the format (2|3|unknown)\..*--root.*the version that made it"):
        Workspace(tmp_path).claim()
    assert (tmp_path / "workspace.json").read_text() == content


def test_unrelated_folders_do_not_make_a_workspace_old(tmp_path: Path) -> None:
    for name in ("logs", "mlartifacts", "comparisons", ".lock", "mlflow.db"):
        (tmp_path / name).mkdir()
    Workspace(tmp_path).claim()
    assert (tmp_path / "workspace.json").exists()


def test_a_removed_marker_is_rewritten(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.claim()
    (tmp_path / "workspace.json").unlink()
    workspace.claim()
    assert (tmp_path / "workspace.json").exists()


def test_processes_starting_together_share_a_new_workspace(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from stillhouse.core.artifacts import Workspace\n"
        "from stillhouse.values.data import TextTable\n"
        "while not Path(sys.argv[2]).exists(): pass\n"
        "for n in range(50):\n"
        "    workspace = Workspace(Path(sys.argv[1]) / str(n))\n"
        "    workspace.path(TextTable(sys.argv[3])).mkdir(parents=True)\n"
        "    workspace.listed('corpora')\n"
    )
    start = tmp_path / "start"
    command = [sys.executable, "-c", code, str(tmp_path / "runs"), str(start)]
    environment = {**os.environ, "PYTHONPATH": PLATFORM}
    processes = [
        subprocess.Popen([*command, str(n)], env=environment, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    start.touch()
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors
    assert not any(errors), "none takes what another one has just written for damaged"
    assert {len(list(root.glob("corpora/*"))) for root in (tmp_path / "runs").iterdir()} == {4}


@each_row("command", [["store", "ls"], ["embed", "--local"], ["sweep", "mse"]])
def test_commands_refuse_an_old_workspace_before_any_work(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    corpus, root = tmp_path / "texts.txt", tmp_path / "runs"
    corpus.write_text("one sentence\nanother one\n")
    (root / "stores" / "texts-0123456789abcdef").mkdir(parents=True)
    data = ["--teacher", str(tiny_model), "--corpus", str(corpus)] if command[0] != "store" else []
    assert main([*command, *data, "--root", str(root)]) == 2
    error = capsys.readouterr().err
    assert "holds artifacts but no workspace.json. Give another --root" in error
    assert os.listdir(root) == ["stores"]


def test_a_file_that_the_system_cuts_short_is_named(tmp_path: Path) -> None:
    """A limit of a file's size; torch reports it as an inconsistency of its own."""
    import torch

    from stillhouse.training import checkpoint

    def save() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        with pytest.raises(Hindered, match="must be written as a whole"):
            checkpoint.save(tmp_path, 1, {"w": torch.zeros(20_000)})

    child = multiprocessing.get_context("fork").Process(target=save)
    child.start()
    child.join()
    assert child.exitcode == 0 and not [path for path in tmp_path.rglob("*") if path.is_file()]
