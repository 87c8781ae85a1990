"""A sweep's study in a database: trials are added as they end, and an outage loses nothing."""

import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from mlflow_process import free_port
from optuna.storages import RDBStorage
from postgres_server import Postgres, postgres
from rows import each_row
from studies import drive, finish, searcher  # type: ignore[import-not-found]

from stillhouse.core.errors import BadInput
from stillhouse.core.notes import SWEEP_NOTE, write_note
from stillhouse.search import study_in_database
from stillhouse.search.options import STUDY_DATABASE
from stillhouse.search.study_backup import STUDY
from stillhouse.search.study_in_database import StudyInDatabase


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def database(server: Postgres) -> str:
    return str(server.create(f"of_{uuid.uuid4().hex}"))


def begun(folder: Path, space: str = "a") -> Path:
    """The folder of a sweep that has begun."""
    folder.mkdir(parents=True)
    write_note(folder / SWEEP_NOTE, {"identity": {"space": space}, "space": [space]})
    return folder


def trials_in(url: str, name: str) -> list[Any]:
    """The trials of a study as they are now; none if it is not there."""
    storage = RDBStorage(url)
    try:
        trials = optuna.load_study(study_name=name, storage=storage).trials
    except KeyError:
        return []
    finally:
        storage.engine.dispose()
    return [
        (t.number, t.state, t.values, t.params, t.intermediate_values, t.user_attrs, t.datetime_start)
        for t in trials
    ]


def in_file(folder: Path) -> list[Any]:
    return trials_in(f"sqlite:///{folder / STUDY}", folder.name)


def test_ended_trials_are_added_under_their_numbers(database: str, tmp_path: Path) -> None:
    folder = begun(tmp_path / "50 % of #1" / "one")
    search, copy = searcher(folder), StudyInDatabase(database, folder)
    search.suggest("runs")
    search.suggest("ends first")
    finish(search, "ends first", 0.25)
    copy.update()
    assert trials_in(database, "one") == [], "trial 1 has ended, but would be added as number 0"
    finish(search, "runs", 0.5)
    copy.update()
    assert trials_in(database, "one") == in_file(folder) and len(in_file(folder)) == 2
    drive(search)
    search.explain(3, "it diverged")
    copy.update()
    copy.update()
    assert trials_in(database, "one") == in_file(folder) and len(in_file(folder)) == 8
    there = optuna.load_study(study_name="one", storage=database)
    assert there.user_attrs["reason:3"] == "it diverged" and there.metric_names == ["q"]


def test_another_sweep_of_the_name_is_told_once_and_left_alone(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of other data, and one of the same data with other trials."""
    folder, second = begun(tmp_path / "one" / "s"), begun(tmp_path / "two" / "s")
    drive(searcher(folder, trials=2))
    StudyInDatabase(database, folder).update()
    before = trials_in(database, "s")
    drive(searcher(second, trials=3, seed=8))
    for space in ("b", "a"):
        write_note(second / SWEEP_NOTE, {"identity": {"space": space}, "space": [space]})
        copy = StudyInDatabase(database, second)
        copy.update()
        copy.update()
        said = capsys.readouterr().err
        assert trials_in(database, "s") == before
        assert said.count("a study of this name must be of this sweep") == 1 and "another --name" in said


def test_a_database_that_is_away_is_told_once_and_brought_up_to_date(
    server: Postgres,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(study_in_database._OPTIONS["connect_args"], "connect_timeout", 2)
    folder = begun(tmp_path / "s")
    copy = StudyInDatabase(database, folder)
    for trials, how in ((2, "stopped"), (4, "stands still")):
        drive(searcher(folder, trials=trials))
        server.stop() if how == "stopped" else server.signalled(signal.SIGSTOP)
        try:
            began = time.monotonic()
            copy.update()
            copy.update()
            assert time.monotonic() - began < 20
        finally:
            server.start() if how == "stopped" else server.signalled(signal.SIGCONT)
        told = capsys.readouterr().err
        assert told.count("is behind the one in the workspace") == 1 and server.password not in told
        copy.update()
        assert trials_in(database, "s") == in_file(folder) and len(in_file(folder)) == trials


def test_what_is_missing_is_named_without_the_password(
    server: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(searcher(folder := begun(tmp_path / "s"), trials=1))
    StudyInDatabase(
        f"postgresql+psycopg://team:{server.password}@127.0.0.1:{free_port()}/team", folder
    ).update()
    StudyInDatabase(server.url("nowhere"), folder).update()
    told = capsys.readouterr().err
    assert "refused" in told and 'database "nowhere" does not exist' in told
    assert server.password not in told


@each_row("url", ["study.db", "sqlite:///a.db", "http://db", "mysql://db/a", "postgresql"])
def test_what_is_no_postgres_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{STUDY_DATABASE} must be the URL of a Postgres"):
        StudyInDatabase(url, tmp_path / "s")


def test_a_driver_that_is_not_installed_is_refused_by_the_name_of_the_variable(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=rf"driver of the database must.*{STUDY_DATABASE}=postgresql\+nothing"):
        StudyInDatabase("postgresql+nothing://ann@db/studies", tmp_path / "s")
