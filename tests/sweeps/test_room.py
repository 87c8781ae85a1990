"""A sweep with a small head has its models measured, exported and drawn on another node."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from other_node import OtherNode

from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import Hindered
from stillhouse.core.remotes import remote_at
from stillhouse.experiments.preparation import Prepared
from stillhouse.reports.entries import COSTS
from stillhouse.search.records import TrialRecord
from stillhouse.sweeps import costs, room
from stillhouse.sweeps.room import Room
from stillhouse.values.data import VectorFiles
from stillhouse.values.setting import Setting

NEED = Need(workers=2, cpus=3)


def written(folder: Path, word: str) -> int:
    """Write a folder as an export is one: it must not be there, and has files in folders."""
    (folder / "inside").mkdir(parents=True)
    (folder / "a.txt").write_text(word)
    (folder / "inside" / "b.txt").write_text(word * 2)
    return len(word)


def looked_up(folder: Path, workspace: Workspace) -> None:
    """Write down the name of a folder of the workspace, for which its format is checked."""
    workspace.check()
    folder.mkdir()
    (folder / "a.txt").write_text(workspace.folder("stages").name)


def refused(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "half.txt").write_text("half")
    raise Hindered("the disk is full")


def content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


@pytest.fixture
def setting(embedded: tuple[Path, Prepared]) -> Setting:
    return embedded[1].setting


@pytest.fixture
def node(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> OtherNode:
    """The other node, since this one has too little; its disk is its own."""
    workspace.claim()
    node = OtherNode(workspace.root)
    monkeypatch.setattr(room, "has_room_here", lambda need: need != NEED)
    monkeypatch.setattr(room, "largest_share", lambda need, count: dataclasses.replace(need, cpus=8 / count))
    monkeypatch.setattr(room, "call", node)
    return node


@pytest.fixture
def separate(workspace: Workspace, tmp_path: Path) -> Workspace:
    """The workspace with a remote, which the nodes have in common instead of a disk."""
    return Workspace(workspace.root, remote_at(str(tmp_path / "remote")))


def test_a_gpu_is_reserved_where_there_is_room_too(
    node: OtherNode, workspace: Workspace, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "has_room_here", lambda need: True)
    places: list[Need] = []

    def call(function: Any, *given: Any, need: Need) -> Any:
        places.append(need)
        return function(*given)

    monkeypatch.setattr(room, "call", call)
    for need in (Need(), Need(workers=2, gpus=1.0)):
        assert Room(workspace, need, setting).call("measuring", len, "ab") == 2
    assert [(need.workers, need.gpus) for need in places] == [(1, 1.0)]


def test_what_another_node_writes_is_brought_here_and_is_nowhere_else(
    node: OtherNode, separate: Workspace, setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, elsewhere = separate.root / "sweeps" / "small" / "export", Room(separate, NEED, setting)
    for word in ("first", "again"):
        assert elsewhere.fill("exporting", folder, written, word) == 5
        assert content(folder) == {"a.txt": word, "inside/b.txt": word * 2}
        (folder / "old.txt").write_text("of an export before")
    assert node.used == [Need(workers=1, cpus=8)] * 2
    assert not list(tmp_path.glob("of-the-node/sweeps/small/*")), "a node keeps nothing that nobody looks for"
    assert not [path for path in (tmp_path / "remote").rglob("*") if path.is_file()]
    assert capsys.readouterr().err.count("less than a trial needs") == 1


def test_a_node_that_has_nothing_yet_is_no_workspace_of_an_old_version(
    node: OtherNode, separate: Workspace, setting: Setting
) -> None:
    """The folder of a sweep is the first that it gets, before the models are fetched."""
    folder = separate.root / "sweeps" / "small" / "export"
    Room(separate, NEED, setting).fill("exporting", folder, looked_up, separate)
    assert content(folder) == {"a.txt": "stages"}


def test_what_fails_there_leaves_what_was_here(
    node: OtherNode, separate: Workspace, setting: Setting, tmp_path: Path
) -> None:
    folder, elsewhere = separate.root / "export", Room(separate, NEED, setting)
    elsewhere.fill("exporting", folder, written, "first")
    with pytest.raises(Hindered, match="the disk is full"):
        elsewhere.fill("exporting", folder, refused)
    assert content(folder) == {"a.txt": "first", "inside/b.txt": "firstfirst"}
    assert not (tmp_path / "of-the-node" / "export").exists()


def test_on_a_shared_disk_it_is_written_in_place(
    node: OtherNode, workspace: Workspace, setting: Setting
) -> None:
    node.root = None
    folder = workspace.root / "export"
    assert Room(workspace, NEED, setting).fill("exporting", folder, written, "word") == 4
    assert content(folder) == {"a.txt": "word", "inside/b.txt": "wordword"} and len(node.used) == 1


@pytest.mark.parametrize("why", ["room", "files"])
def test_this_node_does_it_if_it_has_room_or_the_vectors(
    why: str, node: OtherNode, separate: Workspace, setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    if why == "files":
        setting = dataclasses.replace(
            setting, teacher=VectorFiles("0" * 64, ("text", "vector", ""), normalize=True)
        )
    here = Room(separate, NEED if why == "files" else Need(), setting)
    assert here.call("measuring", len, "abc") == 3
    assert here.fill("exporting", separate.root / "export", written, "word") == 4
    assert not node.used and not capsys.readouterr().err


def test_students_of_other_architectures_are_timed_on_the_node_of_the_best_student(
    node: OtherNode, setting: Setting, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one call; what is known is not measured again."""
    node.root = None
    monkeypatch.setattr(costs, "fingerprint", str)
    monkeypatch.setattr(costs, "encoder_in", lambda folder, device: SimpleNamespace(student=folder))
    monkeypatch.setattr(costs, "cost", lambda _, student, **__: dict.fromkeys(COSTS, float(student)))
    context: Any = SimpleNamespace(
        plan=lambda values: SimpleNamespace(student=values["student"]),
        workspace=SimpleNamespace(path=lambda stage: stage.student),
        where=SimpleNamespace(device="cpu"),
    )
    best: Any = SimpleNamespace(stage=SimpleNamespace(student=1))
    records = [record(number, student) for number, student in enumerate([1, 1, 7])]
    for _ in range(2):
        elsewhere = Room(workspace, NEED, setting)
        found = list(costs.costs_of(records, best, dict.fromkeys(COSTS, 1.5), context, tmp_path, elsewhere))
        assert [(each.number, cost["megabytes"]) for each, cost in found] == [(0, 1.5), (1, 1.5), (2, 7.0)]
    assert len(node.used) == 1


def record(number: int, student: int) -> TrialRecord:
    return TrialRecord(number, {"student": student}, "COMPLETE", (0.5,), {}, None, 1.0, 64, {}, {})
