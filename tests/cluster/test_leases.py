"""One node of a cluster makes an artifact; the lease of a process that ends is free."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_ray import local_ray

from stillhouse.cluster import leases
from stillhouse.cluster.leases import Leases, making
from stillhouse.core import console
from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import never_silent
from stillhouse.core.remotes import Remote
from stillhouse.values.data import TextTable

TEXTS = TextTable("0" * 64, "words")


def test_a_lease_is_free_when_it_is_given_back_or_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    held = Leases(30.0)
    assert held.take("a", "one", "node 1") == ""
    assert held.take("a", "two", "node 2") == "node 1" and held.take("b", "two", "node 2") == ""
    now = 20.0
    assert held.take("a", "one", "node 1") == "", "renewed"
    now = 49.0
    assert held.take("a", "two", "node 2") == "node 1"
    held.give("a", "two")
    assert held.take("a", "two", "node 2") == "node 1", "only its holder gives a lease back"
    now = 51.0
    assert held.take("a", "two", "node 2") == "" and held.take("a", "one", "node 1") == "node 2"
    held.give("a", "two")
    assert held.take("a", "one", "node 1") == ""


@pytest.fixture(scope="module")
def one_node() -> Iterator[Any]:
    import ray

    with local_ray(2):
        yield ray


@pytest.fixture
def cluster(one_node: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Ray of this machine that counts as several nodes; leases last for 1.5 s."""
    monkeypatch.setattr(leases, "_on_cluster", lambda: True)
    monkeypatch.setattr(leases, "LASTS_S", 1.5)
    monkeypatch.setattr(leases, "_RENEW_S", 0.2)
    monkeypatch.setattr(leases, "_ASK_S", 0.1)
    return one_node


@pytest.mark.ray
def test_nodes_make_an_artifact_in_turn_and_a_dead_one_is_not_waited_for(
    cluster: Any, tmp_path: Path
) -> None:
    def hold(root: str, remote: str, *, die: bool) -> float:
        """Make the artifact on another node, and return since when."""
        leases._on_cluster, leases._ASK_S = (lambda: True), 0.1
        with making(Workspace(Path(root), Remote(remote)), TEXTS):
            began = time.time()
            if die:
                os._exit(1)
            return began

    remote = str(tmp_path / "remote")
    (tmp_path / "remote").mkdir()
    on_a_node = cluster.remote(hold).options(max_retries=0)
    here = Workspace(tmp_path / "here", Remote(remote))
    with making(here, TEXTS):
        elsewhere = on_a_node.remote(str(tmp_path / "there"), remote, die=False)
        _, waiting = cluster.wait([elsewhere], timeout=2.5)
        assert waiting, "longer than a lease that is not renewed"
        freed = time.time()
    assert cluster.get(elsewhere, timeout=60) >= freed

    with pytest.raises(cluster.exceptions.WorkerCrashedError):
        cluster.get(on_a_node.remote(str(tmp_path / "dead"), remote, die=True), timeout=60)
    since = time.monotonic()
    with making(here, TEXTS):
        assert time.monotonic() - since < 20


@pytest.mark.ray
def test_who_is_waited_for_is_said(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_JUST_BEGUN_S", 0.0)
    monkeypatch.setattr(console, "SILENT_S", 0.3)
    (tmp_path / "remote").mkdir()
    here = Workspace(tmp_path / "here", Remote(str(tmp_path / "remote")))
    key = f"{here.remote}/{here.key(TEXTS)}"
    assert cluster.get(leases._actor().take.remote(key, "dead", "process 7 of there")) == ""
    with never_silent(), making(here, TEXTS):
        pass
    said = capsys.readouterr().err
    assert f"waiting for process 7 of there, which makes words-{TEXTS.fingerprint}" in said


@pytest.mark.ray
def test_without_the_actor_work_goes_on(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost() -> Any:
        raise cluster.exceptions.RayActorError

    monkeypatch.setattr(leases, "_actor", lost)
    (tmp_path / "remote").mkdir()
    with making(Workspace(tmp_path / "here", Remote(str(tmp_path / "remote"))), TEXTS):
        pass
    assert "another node may make it too: RayActorError" in capsys.readouterr().err


def test_nodes_that_share_a_disk_share_its_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_on_cluster", lambda: True)
    monkeypatch.setattr(leases, "_actor", lambda: pytest.fail("no lease is needed"))
    workspace, order = Workspace(tmp_path), list[str]()

    def other() -> None:
        with making(workspace, TEXTS):
            order.append("other")

    with making(workspace, TEXTS):
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join(30)
    assert order == ["first", "other"]
