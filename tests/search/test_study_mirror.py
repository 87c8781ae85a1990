"""A sweep's study in a database: it follows the file, a new workspace goes on, an outage costs nothing."""

import signal
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest
from mlflow_process import free_port, wait_for  # type: ignore[import-not-found]
from optuna.storages import RDBStorage
from optuna.trial import TrialState, create_trial
from postgres_server import Postgres, postgres  # type: ignore[import-not-found]
from studies import DISCRETE, NUMERIC, drive, finish, searcher, sequence  # type: ignore[import-not-found]

from stillhouse.core.errors import BadInput, Hindered
from stillhouse.core.notes import SWEEP_NOTE, read_note, write_note
from stillhouse.search import study_mirror
from stillhouse.search.options import STUDY_DATABASE
from stillhouse.search.studies import copy_trials
from stillhouse.search.study_backup import STUDY, restore_study
from stillhouse.search.study_mirror import StudyMirror

BEGUN = {"identity": {"space": "a"}, "space": ["x"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def empty(server: Postgres) -> str:
    """The address of a database without any table."""
    return str(server.create(f"of_{uuid.uuid4().hex}"))


@pytest.fixture
def database(empty: str) -> str:
    """The address of a database that the tests, too, may read at once."""
    RDBStorage(empty).engine.dispose()
    return empty


@pytest.fixture(autouse=True)
def every_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_mirror, "EVERY_S", 0.1)


def begun(folder: Path, content: dict[str, Any] = BEGUN) -> Path:
    """The folder of a sweep that has begun."""
    folder.mkdir(parents=True)
    write_note(folder / SWEEP_NOTE, content)
    return folder


def trials_in(url: str, name: str) -> list[Any]:
    """The trials of a study as they are now; none if it is not there yet."""
    storage = RDBStorage(url, skip_compatibility_check=True, skip_table_creation=True)
    try:
        trials = optuna.load_study(study_name=name, storage=storage).trials
    except KeyError:
        return []
    finally:
        storage.engine.dispose()
    return [
        (t.number, t.state, t.values, t.params, dict(t.intermediate_values), t.user_attrs, t.datetime_start)
        for t in trials
    ]


def in_file(folder: Path) -> list[Any]:
    return trials_in(f"sqlite:///{folder / STUDY}", folder.name)


def test_the_database_follows_within_seconds_and_has_everything_at_the_end(
    database: str, tmp_path: Path
) -> None:
    folder = begun(tmp_path / "50 % of #1" / "one")
    with StudyMirror(database, folder).following():
        search = searcher(folder)
        search.suggest("a")
        wait_for(lambda: [t[1] for t in trials_in(database, "one")] == [TrialState.RUNNING], "it has begun")
        search.on_trial_result("a", {"q": 0.2, "examples_seen": 50, "finished": False})
        wait_for(lambda: trials_in(database, "one")[0][4] == {50: 0.2}, "an evaluation is there")
        finish(search, "a", 0.5)
        wait_for(lambda: trials_in(database, "one")[0][1:3] == (TrialState.COMPLETE, [0.5]), "it has ended")
        drive(search)
        search.explain(3, "it diverged")
    assert trials_in(database, "one") == in_file(folder) and len(in_file(folder)) == 8
    there = optuna.load_study(study_name="one", storage=database)
    assert there.user_attrs["reason:3"] == "it diverged"
    assert there.user_attrs["sweep"] == read_note(folder / SWEEP_NOTE, "")


def test_commands_that_find_the_database_empty_at_once_do_not_disturb_each_other(
    empty: str, tmp_path: Path
) -> None:
    folders = [begun(tmp_path / f"s{number}") for number in range(4)]
    for folder in folders:
        searcher(folder).suggest("a")
    together = threading.Barrier(len(folders))

    def follow(folder: Path) -> None:
        mirror = StudyMirror(empty, folder)
        together.wait()
        mirror.follow()

    with ThreadPoolExecutor(len(folders)) as pool:
        list(pool.map(follow, folders))
    assert [trials_in(empty, folder.name) for folder in folders] == [in_file(f) for f in folders]


def test_another_workspace_goes_on_with_the_same_trials(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an undisturbed search would have, with the trial that ran under its number."""
    drive(alone := searcher(begun(tmp_path / "alone" / "s")))
    folder, there = begun(tmp_path / "one" / "s"), tmp_path / "two" / "s"
    first = searcher(folder, trials=2)
    drive(first)
    open_trial = searcher(folder).suggest("open")
    StudyMirror(database, folder).follow()
    StudyMirror(database, there).restore()
    assert "going on from its study in the database (finished trials: 2)" in capsys.readouterr().err
    assert read_note(there / SWEEP_NOTE, "") == read_note(folder / SWEEP_NOTE, "")
    restore_study(there)
    again = searcher(there)
    assert in_file(there) == in_file(folder)
    assert again.suggest("x") == open_trial
    drive(searcher(there))
    assert sequence(searcher(there)) == sequence(alone)
    assert "damaged" not in capsys.readouterr().err


def test_a_workspace_that_knows_as_much_keeps_its_file_and_one_that_knows_less_does_not(
    database: str, tmp_path: Path
) -> None:
    folder, behind = begun(tmp_path / "one" / "s"), begun(tmp_path / "two" / "s")
    drive(searcher(folder, trials=3))
    drive(searcher(behind, trials=2))
    mirror = StudyMirror(database, folder)
    mirror.restore()
    mirror.follow()
    before = (folder / STUDY).read_bytes()
    mirror.restore()
    assert (folder / STUDY).read_bytes() == before
    StudyMirror(database, behind).restore()
    assert in_file(behind) == in_file(folder)
    restore_study(behind)
    assert len(in_file(behind)) == 3, "the backup of the older study is not taken back"


def test_what_has_ended_in_the_database_is_never_changed(database: str, tmp_path: Path) -> None:
    folder = begun(tmp_path / "s")
    search = searcher(folder)
    search.suggest("a")
    StudyMirror(database, folder).follow()
    finish(search, "a", 0.25)
    other = RDBStorage(database)
    (trial,) = optuna.load_study(study_name="s", storage=other).trials
    other.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    StudyMirror(database, folder).follow()
    assert trials_in(database, "s")[0][1] == TrialState.FAIL


@pytest.mark.parametrize("other", ["its data", "its trials"])
def test_another_sweep_of_the_name_is_told_once_and_left_alone(
    other: str, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, second = begun(tmp_path / "one" / "s"), tmp_path / "two" / "s"
    drive(searcher(folder, trials=2))
    StudyMirror(database, folder).follow()
    before = trials_in(database, "s")
    begun(second, {"identity": {"space": "b"}} if other == "its data" else BEGUN)
    with StudyMirror(database, second).following():
        drive(searcher(second, trials=4, seed=8))
        time.sleep(0.5)
    said = capsys.readouterr().err
    assert trials_in(database, "s") == before
    rule = "a study of this name" if other == "its data" else "must have the same trials"
    assert said.count("is behind the one in the workspace") == 1 and rule in said


@pytest.mark.parametrize("how", ["stopped", "stands still"])
def test_a_database_that_is_away_delays_no_trial_and_is_brought_up_to_date(
    how: str, server: Postgres, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begun(tmp_path / "s")
    with StudyMirror(database, folder).following():
        drive(searcher(folder, trials=2))
        wait_for(lambda: len(trials_in(database, "s")) == 2, "it follows")
        server.stop() if how == "stopped" else server.signalled(signal.SIGSTOP)
        began = time.monotonic()
        drive(searcher(folder))
        assert time.monotonic() - began < 10
        if how == "stopped":
            time.sleep(1)
        server.start() if how == "stopped" else server.signalled(signal.SIGCONT)
        wait_for(lambda: trials_in(database, "s") == in_file(folder), "it has everything again")
    told = capsys.readouterr()
    if how == "stopped":
        assert told.err.count("is behind the one in the workspace") == 1
        assert server.password not in told.err and "tried again every second" in told.err
        assert "complete again" in told.err


def test_a_sweep_ends_though_the_database_stands_still(
    server: Postgres,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(study_mirror, "_PATIENCE_S", 0.5)
    folder = begun(tmp_path / "s")
    goes_on = threading.Timer(20, server.signalled, [signal.SIGCONT])  # One that waits for it ends, too late.
    goes_on.start()
    try:
        with StudyMirror(database, folder).following():
            drive(searcher(folder, trials=1))
            wait_for(lambda: len(trials_in(database, "s")) == 1, "it follows")
            server.signalled(signal.SIGSTOP)
            drive(searcher(folder, trials=2))
            began = time.monotonic()
        assert time.monotonic() - began < 5
    finally:
        goes_on.cancel()
        server.signalled(signal.SIGCONT)
    assert "does not answer. The same command brings it up to date" in capsys.readouterr().err
    with StudyMirror(database, folder).following():
        pass
    assert trials_in(database, "s") == in_file(folder)


def test_a_database_without_an_answer_at_the_start_is_refused_without_its_password(
    server: Postgres, tmp_path: Path
) -> None:
    url = f"postgresql+psycopg://team:{server.password}@127.0.0.1:{free_port()}/team"
    with pytest.raises(Hindered, match=r"must answer at the start of a sweep.*refused.*unset") as refused:
        StudyMirror(url, tmp_path / "s").restore()
    assert server.password not in str(refused.value) and not (tmp_path / "s").exists()
    with pytest.raises(Hindered, match=r"database .nowhere. does not exist"):
        StudyMirror(server.url("nowhere"), tmp_path / "s").restore()


@pytest.mark.parametrize("url", ["study.db", "sqlite:///a.db", "http://db", "mysql://db/a", "postgresql"])
def test_what_is_no_postgres_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{STUDY_DATABASE} must be the URL of a Postgres"):
        StudyMirror(url, tmp_path / "s")


def test_a_driver_that_is_not_installed_is_refused_by_the_name_of_the_variable(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=rf"driver of the database must.*{STUDY_DATABASE}=postgresql\+nothing"):
        StudyMirror("postgresql+nothing://ann@db/studies", tmp_path / "s")


def test_a_copy_keeps_the_numbers_or_is_refused(tmp_path: Path) -> None:
    """Someone else may add a trial to the copy between the look at it and the next trial."""
    search = searcher(tmp_path)
    search.suggest("a")
    storage, study = search._storage
    other = searcher(tmp_path / "other")
    there, copied = other._storage
    there.create_new_trial(copied, create_trial(state=TrialState.RUNNING))
    with pytest.raises(BadInput, match="two copies of a study must have the same trials"):
        copy_trials(storage.get_all_trials(study), there, copied)


def test_a_search_with_another_space_is_refused_after_a_restore(database: str, tmp_path: Path) -> None:
    there = tmp_path / "two" / "s"
    searcher(folder := begun(tmp_path / "one" / "s"), NUMERIC)
    StudyMirror(database, folder).follow()
    StudyMirror(database, there).restore()
    with pytest.raises(BadInput, match="must be resumed with the space"):
        searcher(there, DISCRETE)


def test_threads_end_with_the_block(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="needs the extra `postgres`")
    folder = begun(tmp_path / "s")
    with StudyMirror(f"postgresql+psycopg://x@127.0.0.1:{free_port()}/a", folder).following():
        assert any(thread.name == "study in a database" for thread in threading.enumerate())
    assert not any(thread.name == "study in a database" for thread in threading.enumerate())
