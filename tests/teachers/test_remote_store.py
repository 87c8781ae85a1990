"""A store whose shards are made on several nodes, each with a disk of its own, and meet in the remote."""

import shutil
from pathlib import Path

import pytest

from stillhouse.core.artifacts import MANIFEST, Workspace
from stillhouse.core.errors import Hindered
from stillhouse.core.remotes import Remote
from stillhouse.teachers.build_state import Build
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.teachers.shards import Embedders, Work, note_name, tokenise
from stillhouse.teachers.store import StoreReader, open_store
from stillhouse.values.data import Store


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    (tmp_path / "mounted").mkdir()
    return Remote(str(tmp_path / "mounted"))


@pytest.fixture
def straight(workspace: Workspace, store: Store, tmp_path: Path) -> dict[str, bytes]:
    """The files of the store as one undisturbed process makes it."""
    alone = Workspace(tmp_path / "alone")
    shutil.copytree(workspace.root, alone.root)
    build_stores(alone, [store], local=True)
    return shards(alone.path(store))


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("part-*.arrow")}


def published_texts(workspace: Workspace, store: Store, remote: Remote) -> None:
    Workspace(workspace.root, remote).publish(store.texts)


def test_shards_of_two_nodes_become_one_store_that_a_third_reads(
    workspace: Workspace, store: Store, remote: Remote, straight: dict[str, bytes], tmp_path: Path
) -> None:
    published_texts(workspace, store, remote)
    tokenizer = tokenizer_of(store.teacher)
    nodes = [Work(store, tmp_path / name, tokenizer, remote=remote) for name in ("one", "two")]
    driver = Build(Work(store, tmp_path / "driver", tokenizer, remote=remote))
    assert driver.missing() == [0, 1, 2, 3, 4]
    for part in driver.missing():
        work = nodes[part % 2]
        driver.add(Embedders([work])(0, part, *tokenise(work, part)))
    assert not remote.has(Workspace(tmp_path).key(store))
    driver.finish()
    assert sorted(shards(nodes[0].folder)) == ["part-00000.arrow", "part-00002.arrow", "part-00004.arrow"]
    assert not shards(driver.work.folder) and not (driver.work.folder / MANIFEST).exists()
    reader = open_store(Workspace(tmp_path / "third", remote), store)
    assert shards(reader.folder) == straight and len(reader) == 44
    assert shards(Workspace(tmp_path / "one", remote).path(store)) == straight, "the missing ones are fetched"


def test_a_build_that_is_killed_goes_on_elsewhere_with_the_missing_shards(
    workspace: Workspace,
    store: Store,
    remote: Remote,
    straight: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published_texts(workspace, store, remote)
    made: list[int] = []
    call = Embedders.__call__

    def noted(self: Embedders, number: int, index: int, *tokens: object) -> object:
        if made == [0, 1]:
            raise KeyboardInterrupt
        made.append(index)
        return call(self, number, index, *tokens)  # type: ignore[arg-type]

    monkeypatch.setattr(Embedders, "__call__", noted)
    with pytest.raises(KeyboardInterrupt):
        build_stores(Workspace(tmp_path / "one", remote), [store], local=True)
    note = tmp_path / "mounted" / Workspace(tmp_path).key(store) / note_name(1)
    note.write_text(note.read_text()[:-9])
    made[:] = []
    elsewhere = Workspace(tmp_path / "two", remote)
    build_stores(elsewhere, [store], local=True)
    assert made == [1, 2, 3, 4], "the first is there; what is not sure to be whole is made again"
    assert elsewhere.finished(store) and shards(elsewhere.path(store)) == straight
    made[:] = []
    build_stores(Workspace(tmp_path / "three", remote), [store], local=True)
    assert not made


def test_a_node_keeps_no_shards_that_it_has_no_room_for(
    workspace: Workspace,
    store: Store,
    remote: Remote,
    straight: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published_texts(workspace, store, remote)
    one, shard = Workspace(tmp_path / "one", remote), max(map(len, straight.values()))
    one.path(store.texts)
    before = sum(path.stat().st_size for path in one.root.rglob("*") if path.is_file())
    monkeypatch.setenv("STILLHOUSE_CACHE_GB", str((before + 3.5 * shard) / 1e9))
    build_stores(one, [store], local=True)
    assert 0 < len(shards(one.place(store))) < 5 and one.finished(store)
    monkeypatch.delenv("STILLHOUSE_CACHE_GB")
    assert shards(open_store(Workspace(tmp_path / "two", remote), store).folder) == straight


def test_what_an_earlier_run_made_without_a_remote_is_published(
    workspace: Workspace, store: Store, remote: Remote, straight: dict[str, bytes], tmp_path: Path
) -> None:
    build_stores(workspace, [store], local=True)
    (workspace.path(store) / MANIFEST).unlink()
    here = Workspace(workspace.root, remote)
    here.publish(store.texts)
    build_stores(here, [store], local=True)
    reader = StoreReader(Workspace(tmp_path / "two", remote).path(store))
    assert shards(reader.folder) == straight


def test_a_shard_of_the_remote_that_was_altered_is_named(
    workspace: Workspace, store: Store, remote: Remote, tmp_path: Path
) -> None:
    here = Workspace(workspace.root, remote)
    build_stores(here, [store], local=True)
    (shard,) = (tmp_path / "mounted" / here.key(store)).glob("*/part-00002.arrow")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(Hindered, match=r"manifest names, but part-00002.arrow of .* is not"):
        open_store(Workspace(tmp_path / "two", remote), store)
