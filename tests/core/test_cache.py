"""The limit of a node's cache: the least recently used artifacts go, whole, and never one that is in use."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.core import cache
from stillhouse.core.artifacts import MANIFEST, Workspace, locked, write_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.remotes import Remote


@dataclasses.dataclass(frozen=True)
class Thing:
    """A small artifact of 100 kB."""

    fingerprint: str
    kind: str = "things"
    label: str = "thing"


ONE, TWO, THREE = (Thing(f"{number}" * 16) for number in (1, 2, 3))


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    (tmp_path / "mounted").mkdir()
    return Remote(str(tmp_path / "mounted"))


@pytest.fixture
def there(remote: Remote, tmp_path: Path) -> Workspace:
    """A workspace whose three artifacts are published."""
    other = Workspace(tmp_path / "other", remote)
    for thing in (ONE, TWO, THREE):
        made(other, thing)
        other.publish(thing)
    return other


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two of them."""
    monkeypatch.setenv(cache.LIMIT, "0.00025")
    monkeypatch.setattr(cache, "_using", {})


def made(workspace: Workspace, thing: Thing) -> Path:
    folder = workspace.place(thing)
    folder.mkdir(parents=True)
    (folder / "values.npy").write_bytes(thing.fingerprint[0].encode() * 100_000)
    write_manifest(folder, {})
    return folder


def ended() -> None:
    """Free what this process uses, as its end does."""
    for file in cache._using.values():
        file.close()
    cache._using.clear()


def kept(workspace: Workspace) -> list[str]:
    return sorted(path.parent.name[-1] for path in workspace.root.glob(f"things/*/{MANIFEST}"))


def used(workspace: Workspace, thing: Thing, at: int) -> None:
    """Read an artifact in another process, some seconds after the epoch."""
    folder = workspace.path(thing)
    ended()
    for path in (folder.with_name(f".{folder.name}.used"), folder / MANIFEST):
        os.utime(path, (at, at))


def test_the_least_recently_used_is_dropped_and_fetched_again(there: Workspace, tmp_path: Path) -> None:
    here = Workspace(tmp_path / "here", there.remote)
    used(here, TWO, 1)
    used(here, ONE, 2)
    used(here, TWO, 3)
    here.path(THREE)
    assert kept(here) == ["2", "3"]
    assert not here.place(ONE).exists(), "whole artifacts"
    ended()
    assert (here.path(ONE) / "values.npy").read_bytes() == b"1" * 100_000


def test_a_new_node_states_its_format_before_anything_is_noted(there: Workspace, tmp_path: Path) -> None:
    here, store = Workspace(tmp_path / "here", there.remote), Thing("5" * 16, kind="stores")
    here.obtain(store.kind, f"{store.label}-{store.fingerprint}")
    here.check()
    assert (here.root / "workspace.json").exists()


def test_what_is_in_use_is_never_dropped(there: Workspace, tmp_path: Path) -> None:
    here = Workspace(tmp_path / "here", there.remote)
    for thing in (ONE, TWO, THREE):
        here.path(thing)
    assert kept(here) == ["1", "2", "3"], "of this process"
    ended()
    held = "import sys; from stillhouse.core import cache; from pathlib import Path; "
    held += "cache.use(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    env = {**os.environ, "PYTHONPATH": str(Path(cache.__file__).parents[2])}
    command = [sys.executable, "-c", held, str(here.place(ONE))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        os.utime(here.place(ONE) / MANIFEST, (1, 1))
        os.utime(here.place(ONE).with_name(f".{here.place(ONE).name}.used"), (1, 1))
        os.utime(here.place(TWO).with_name(f".{here.place(TWO).name}.used"), (2, 2))
        os.utime(here.place(TWO) / MANIFEST, (2, 2))
        cache.make_room(here.root, lambda key: True)
        assert kept(here) == ["1", "3"]
        process.communicate("")


def test_what_is_being_made_or_is_here_alone_is_not_dropped(there: Workspace, tmp_path: Path) -> None:
    here = Workspace(tmp_path / "here", there.remote)
    here.path(ONE), here.path(TWO)
    alone = Thing("4" * 16)
    os.utime(made(here, alone) / MANIFEST, (1, 1))
    ended()
    assert there.remote is not None
    with locked(here.place(ONE).with_suffix(".lock")):
        cache.make_room(here.root, there.remote.has)
    assert kept(here) == ["1", "4"]


def test_without_a_limit_nothing_is_dropped_and_all_is_held_for_processes_that_have_one(
    there: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cache.LIMIT)
    here = Workspace(tmp_path / "here", there.remote)
    for thing in (ONE, TWO, THREE):
        here.path(thing)
    monkeypatch.setenv(cache.LIMIT, "0.00001")
    cache.make_room(here.root, lambda key: True)
    assert kept(here) == ["1", "2", "3"]


@each_row("value", ["much", "-1", "nan", "inf"])
def test_a_limit_that_is_no_size_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, value)
    with pytest.raises(BadInput, match=r"must be a number of gigabytes.*--cache-gb"):
        cache.limit_bytes()
