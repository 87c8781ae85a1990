"""A sweep's study in the remote: a new head goes on from it, and nothing newer is ever replaced."""

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import Hindered
from stillhouse.core.remotes import Remote
from stillhouse.search.published_sweep import PublishedSweep
from stillhouse.search.searcher import StudySearcher
from stillhouse.search.space import Float, Space
from stillhouse.search.study_backup import STUDIES, STUDY, restore_studies
from stillhouse.search.trial import Context
from stillhouse.teachers.shards import Work
from stillhouse.tracking.journal import Journal
from stillhouse.training.where import Where


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    (tmp_path / "mounted").mkdir()
    return Remote(str(tmp_path / "mounted"))


def on(root: Path, remote: Remote) -> PublishedSweep:
    return PublishedSweep(Workspace(root, remote), root / "sweeps" / "s")


def searcher(sweep: PublishedSweep) -> StudySearcher:
    sweep.folder.mkdir(parents=True, exist_ok=True)
    space = Space("m", {"x": Float(0.0, 1.0)}, first={"x": 0.5})
    return StudySearcher(sweep.folder / STUDY, space, trials=9, objective="q", full_budget=10)


def finish_one(search: StudySearcher, name: str) -> Any:
    point = search.suggest(name)
    search.on_trial_complete(name, {"q": 0.5, "examples_seen": 10, "finished": True, "metrics": {}})
    return point


def test_a_new_head_knows_the_finished_trials_and_runs_the_open_one_again(
    remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = on(tmp_path / "one", remote), on(tmp_path / "two", remote)
    search = searcher(one)
    journal = Journal(one.folder)
    journal.append(do="state", key=["s"], state="running")
    journal.confirm("server", journal.size)
    (one.folder / "tune").mkdir()
    (one.folder / "tune" / "scratch").write_text("of this node")
    finish_one(search, "a")
    still_open = search.suggest("b")
    one.publish()
    two.restore()
    assert "going on from the remote (finished trials: 1)" in capsys.readouterr().err
    restore_studies(two.folder)
    there = searcher(two)
    assert [record.state for record in there.records()] == ["COMPLETE", "RUNNING"]
    assert there.suggest("c") == still_open, "under its number, with its values"
    again = Journal(two.folder)
    assert again.id == journal.id and again.size == journal.size
    assert again.confirmed("server") == 0, "what a server has is asked of it, not of another node"
    assert not (two.folder / "tune").exists() and "damaged" not in capsys.readouterr().err


def test_a_head_that_knows_more_keeps_its_study(remote: Remote, tmp_path: Path) -> None:
    one, two = on(tmp_path / "one", remote), on(tmp_path / "two", remote)
    search = searcher(one)
    finish_one(search, "a")
    one.publish()
    finish_one(search, "b")
    before = (one.folder / STUDY).read_bytes()
    one.restore()
    assert (one.folder / STUDY).read_bytes() == before
    two.restore()
    finish_one(there := searcher(two), "c")
    finish_one(there, "d")
    two.publish()
    one.restore()
    restore_studies(one.folder)
    assert len(searcher(one).records()) == 3
    with closing(sqlite3.connect(one.folder / STUDY)) as study:
        assert study.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_is_not_needed_any_more_is_removed(remote: Remote, tmp_path: Path) -> None:
    one = on(tmp_path / "one", remote)
    search = searcher(one)
    for name in "abc":
        finish_one(search, name)
        one.publish()
    listed = remote.listed("sweeps/s") or {}
    assert STUDY in listed and STUDIES[STUDY] not in listed
    needed, kept = {f.place(n) for n, f in listed.items()}, set(remote._sizes("sweeps/s")) - {"manifest.json"}
    assert needed < kept and len(kept) == 2 * len(needed), "of three publications the last two are kept"


def test_a_remote_that_fails_is_reported_once_and_the_search_goes_on(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise Hindered("the remote must answer")

    one = on(tmp_path / "one", remote)
    finish_one(searcher(one), "a")
    with monkeypatch.context() as patched:
        patched.setattr(Remote, "replace", refuse)
        one.publish()
        one.publish()
    assert capsys.readouterr().err.count("its study is on this node alone for now") == 1
    one.publish()
    assert remote.has("sweeps/s")


def test_a_workspace_without_a_remote_publishes_nothing(tmp_path: Path) -> None:
    alone = PublishedSweep(Workspace(tmp_path), tmp_path / "sweeps" / "s")
    alone.restore()
    alone.publish()
    assert not list(tmp_path.iterdir())


def test_trials_and_teacher_actors_are_sent_the_remote(remote: Remote, tmp_path: Path) -> None:
    setting: Any = None
    context = Context("mse", "paper", setting, str(tmp_path), Where(), "q", remote)
    work = Work(setting, tmp_path, remote=remote)
    for sent in (context, work):
        received = pickle.loads(pickle.dumps(sent))
        assert received.workspace == Workspace(tmp_path, remote)
