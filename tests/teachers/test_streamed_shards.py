"""A store that is read from its remote a few shards at a time has the same vectors, and never more files."""

import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.artifacts import MANIFEST, STREAMED, Workspace, lock_of_file, locked
from stillhouse.core.errors import Hindered
from stillhouse.core.remotes import File, Remote
from stillhouse.corpora.tables import write_texts
from stillhouse.teachers.build_state import QUARANTINE
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.store import StreamedReader, open_store, open_vectors
from stillhouse.values.data import Store, StoreEnsemble, StoreMix, TextTable


@pytest.fixture
def remote(workspace: Workspace, store: Store, tmp_path: Path) -> Remote:
    """A remote with the store, whose shards have 10, 10, 10, 10 and 4 rows."""
    (tmp_path / "mounted").mkdir()
    made = Remote(str(tmp_path / "mounted"))
    build_stores(Workspace(workspace.root, made), [store], local=True)
    return made


@pytest.fixture
def here(remote: Remote, tmp_path: Path) -> Workspace:
    """Another node."""
    return Workspace(tmp_path / "node", remote)


def shards(workspace: Workspace, store: Store) -> list[str]:
    folder = workspace.root / STREAMED / workspace.key(store)
    return sorted(path.name for path in folder.glob("part-*.arrow"))


def settled(condition: Callable[[], bool]) -> bool:
    """Whether something holds within some seconds: shards come and go in the background."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def part(*numbers: int) -> list[str]:
    return [f"part-{number:05d}.arrow" for number in numbers]


def mapped(workspace: Workspace) -> set[str]:
    """The shards of a node's folder that this process maps, as Linux tells."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    return {Path(line.removesuffix(" (deleted)")).name for line in lines if str(workspace.root) in line}


def opened(workspace: Workspace, store: Store) -> StreamedReader:
    reader = open_store(workspace, store, streamed=True)
    assert isinstance(reader, StreamedReader)
    return reader


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    receive = Remote._receive

    def noted(self: Remote, key: str, name: str, file: File, *more: object) -> None:
        names.append(name)
        receive(self, key, name, file, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Remote, "_receive", noted)
    return names


def test_vectors_are_those_of_the_store_and_few_shards_are_held(
    workspace: Workspace, store: Store, here: Workspace, fetched: list[str]
) -> None:
    whole, reader = open_store(workspace, store), opened(here, store)
    assert (len(reader), reader.dim, reader.starts.tolist()) == (44, whole.dim, [0, 10, 20, 30, 40])
    assert sorted(fetched) == [MANIFEST, QUARANTINE], "opening fetches no shard"
    for rows in ([0, 3, 41], [41, 2], [12], [39, 20, 20]):
        np.testing.assert_array_equal(reader.gather(np.array(rows)), whole.gather(np.array(rows)))
        held = part(*{row // 10 for row in rows})
        assert settled(lambda held=held: shards(here, store) == sorted(held))  # type: ignore[misc]
        assert mapped(here) <= set(held), "a file that is removed takes room as long as it is mapped"
    assert fetched[2:].count("part-00000.arrow") == 1, "what is held is not fetched again"
    assert not (here.place(store) / MANIFEST).exists() and here.finished(store), "nothing was fetched whole"


def test_what_comes_next_is_fetched_meanwhile_and_the_rest_is_let_go(
    workspace: Workspace, store: Store, here: Workspace, fetched: list[str]
) -> None:
    whole, reader = open_store(workspace, store), opened(here, store)
    reader.expect(np.array([[30, 39], [40, 43]]))
    assert settled(lambda: shards(here, store) == part(3, 4)), "before anything is read"
    reader.gather(np.array([35]))
    assert fetched.count("part-00003.arrow") == 1
    reader.expect(np.array([[40, 43], [5, 12]]))
    np.testing.assert_array_equal(reader.gather(np.array([42, 7, 11])), whole.gather(np.array([42, 7, 11])))
    assert settled(lambda: shards(here, store) == part(0, 1, 4)) and fetched.count("part-00004.arrow") == 1
    del reader
    assert settled(lambda: shards(here, store) == []), "a reader that is gone holds nothing"


def test_readers_of_a_node_share_the_files(store: Store, here: Workspace, fetched: list[str]) -> None:
    one, two = opened(here, store), opened(here, store)
    one.gather(np.array([0]))
    two.gather(np.array([1]))
    assert fetched.count("part-00000.arrow") == 1
    one.gather(np.array([11]))
    assert settled(lambda: shards(here, store) == part(0, 1)), "the other one still reads it"
    two.gather(np.array([12]))
    assert settled(lambda: shards(here, store) == part(1))
    copy = pickle.loads(pickle.dumps(two))
    np.testing.assert_array_equal(copy.gather(np.array([12])), two.gather(np.array([12])))


def _hold(workspace: Workspace, store: Store, ready: Path) -> None:
    reader = opened(workspace, store)
    reader.gather(np.array([0, 20]))
    ready.touch()
    time.sleep(600)


def test_what_a_killed_process_held_is_removed(store: Store, here: Workspace, tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=_hold, args=(here, store, tmp_path / "ready")
    )
    process.start()
    assert settled((tmp_path / "ready").exists)
    reader = opened(here, store)
    assert shards(here, store) == part(0, 2), "a living one's are left alone"
    process.kill()
    process.join()
    unfinished = here.root / STREAMED / here.key(store) / ".part-00001.arrow.tmp"
    unfinished.write_bytes(b"half")
    reader.gather(np.array([41]))
    opened(here, store)
    assert shards(here, store) == part(4) and not unfinished.exists()


def test_one_process_fetches_and_the_other_waits(store: Store, here: Workspace, fetched: list[str]) -> None:
    reader = opened(here, store)
    file = here.root / STREAMED / here.key(store) / "part-00000.arrow"
    with locked(lock_of_file(file)):
        reader.expect(np.array([[0, 9]]))
        time.sleep(0.3)
        assert not file.exists() and "part-00000.arrow" not in fetched
    reader.gather(np.array([0]))
    assert "part-00000.arrow" in fetched


def test_a_damaged_shard_is_named(store: Store, here: Workspace, tmp_path: Path) -> None:
    (shard,) = (tmp_path / "mounted" / here.key(store)).glob("*/part-00001.arrow")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    reader = opened(here, store)
    reader.expect(np.array([[0, 9], [10, 19]]))
    reader.gather(np.array([3]))
    with pytest.raises(Hindered, match=r"manifest names, but part-00001.arrow of .* is not"):
        reader.gather(np.array([15]))
    assert shards(here, store) == part(0), "nothing of it is left"


def test_quarantined_rows_are_counted(workspace: Workspace, store: Store, here: Workspace) -> None:
    whole, reader = open_store(workspace, store), opened(here, store)
    np.testing.assert_array_equal(reader.rows, whole.rows)
    assert reader.lacking.tolist() == whole.lacking.tolist()


def test_a_store_that_is_here_is_read_here(workspace: Workspace, store: Store, remote: Remote) -> None:
    assert not isinstance(open_store(Workspace(workspace.root, remote), store, streamed=True), StreamedReader)
    assert not isinstance(open_store(workspace, store, streamed=True), StreamedReader)


def test_stores_of_several_texts_and_teachers(
    workspace: Workspace, store: Store, remote: Remote, here: Workspace
) -> None:
    own = Workspace(workspace.root, remote)
    more = write_texts(own, "more", [f"a river and {row} cats" for row in range(25)], rows_per_shard=20)
    other = Store(more, store.teacher, max_length=32)
    short = Store(store.texts, store.teacher, max_length=8)
    for each in (other, short):
        build_stores(own, [each], local=True)
    mix = StoreMix(store.texts, (store, other), ((44, ""), (25, "")))
    both = StoreEnsemble(store.texts, (store, short), (0.25, 0.75))
    for vectors, starts, runs in (
        (mix, [0, 10, 20, 30, 40, 44, 64], [[40, 50], [0, 9]]),
        (both, [0, 10, 20, 30, 40], [[40, 43], [0, 9]]),
    ):
        whole, reader = open_vectors(workspace, vectors), open_vectors(here, vectors, streamed=True)
        assert whole.starts.tolist() == reader.starts.tolist() == starts
        reader.expect(np.array(runs))
        rows = np.array([43, 2, 41])
        np.testing.assert_array_equal(reader.gather(rows), whole.gather(rows))
        assert settled(lambda: shards(here, store) == part(0, 4))
        del reader
    reader = open_vectors(here, mix, streamed=True)
    reader.expect(np.array([[44, 63]]))
    assert settled(lambda: shards(here, other) == part(0) and not shards(here, store))


def test_a_store_without_room_is_refused_before_it_is_fetched(
    store: Store, here: Workspace, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        free = 100

    monkeypatch.setattr("shutil.disk_usage", lambda path: Full())
    with pytest.raises(
        Hindered, match=r"room on the disk for the .* GB of .*, but 0.00 GB are free.*shard_window"
    ):
        open_store(here, store)
    assert not fetched
    assert opened(here, store).gather(np.array([0])).shape == (1, 32)


def test_it_is_finished_in_the_remote_without_being_fetched(
    workspace: Workspace, store: Store, here: Workspace, fetched: list[str]
) -> None:
    assert here.finished(store) and not fetched
    table: TextTable = store.texts
    Workspace(workspace.root, here.remote).publish(table)
    build_stores(here, [store], local=True)
    assert not [name for name in fetched if name.startswith("part-")], "nothing is built or fetched"
    assert os.path.isdir(open_store(here, store).folder)
