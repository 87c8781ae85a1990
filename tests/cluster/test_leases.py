"""One node makes an artifact while the others wait; what a node held that is gone is free."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from stillhouse.cluster import leases
from stillhouse.cluster.leases import making
from stillhouse.core import console
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import never_silent
from stillhouse.core.remotes import Remote
from stillhouse.values.data import TextTable

TEXTS = TextTable("0" * 64, "words")
NOTE = f"making/{TEXTS.kind}/words-{TEXTS.fingerprint}"


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """A remote of nodes that share no disk; notes last for 1.5 s."""
    for name, seconds in (("LASTS_S", 1.5), ("_RENEW_S", 0.2), ("_ASK_S", 0.1), ("_SETTLE_S", 0.1)):
        monkeypatch.setattr(leases, name, seconds)
    (tmp_path / "remote").mkdir()
    return Remote(str(tmp_path / "remote"))


def order_of(one: Workspace, *others: Workspace) -> list[str]:
    """Make an artifact for longer than a note lasts, and on other nodes meanwhile; the order of it."""
    order: list[str] = []

    def make(workspace: Workspace) -> None:
        with making(workspace, TEXTS):
            order.append("other begins")
            time.sleep(0.2)
            order.append("other ends")

    threads = [threading.Thread(target=make, args=(workspace,)) for workspace in others]
    with making(one, TEXTS):
        for thread in threads:
            thread.start()
        time.sleep(2)
        order.append("one ends")
    for thread in threads:
        thread.join(60)
    return order


def test_nodes_make_an_artifact_in_turn(tmp_path: Path, remote: Remote) -> None:
    nodes = [Workspace(tmp_path / name, remote) for name in ("a", "b", "c")]
    assert order_of(*nodes) == ["one ends", *["other begins", "other ends"] * 2]
    assert remote.read(NOTE) is None


def test_nodes_that_share_a_disk_share_its_locks(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert order_of(workspace, workspace) == ["one ends", "other begins", "other ends"]


def test_a_node_that_is_gone_is_waited_for_as_long_as_a_note_lasts(
    tmp_path: Path, remote: Remote, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_JUST_BEGUN_S", 0.0)
    monkeypatch.setattr(console, "SILENT_S", 0.3)
    remote.write(NOTE, json.dumps({"holder": "x", "who": "process 7 of there", "place": "there:/"}).encode())
    began = time.monotonic()
    with never_silent(), making(Workspace(tmp_path / "here", remote), TEXTS):
        assert 1.5 <= time.monotonic() - began < 20
    assert f"waiting for process 7 of there, which makes words-{TEXTS.fingerprint}" in capsys.readouterr().err


def test_who_was_killed_here_is_not_waited_for(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path / "here", remote)
    if (child := os.fork()) == 0:
        with making(workspace, TEXTS):
            os._exit(1)
    os.waitpid(child, 0)
    assert str(child) in json.loads(remote.read(NOTE) or b"")["who"]
    monkeypatch.setattr(leases, "_ASK_S", 1e6)
    with making(workspace, TEXTS):
        pass


def test_a_note_that_is_not_ours_to_read_is_written_anew(tmp_path: Path, remote: Remote) -> None:
    remote.write(NOTE, b"\xff[")
    with making(Workspace(tmp_path / "here", remote), TEXTS):
        assert json.loads(remote.read(NOTE) or b"")["holder"]
