"""A damaged or lost study is replaced by its newest good copy, and the sweep goes on as if undisturbed."""

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from studies import drive, finish, searcher, sequence  # type: ignore[import-not-found]

from stillhouse.core.databases import copies_of
from stillhouse.core.errors import Hindered
from stillhouse.search.study_copies import STUDY, damage_of_study, heal_study
from stillhouse.tracking.journal import Journal


def begun(folder: Path, trials: int = 5) -> Path:
    """A study with a journal, of which some trials have ended."""
    drive(searcher(folder, trials=trials))
    noted(folder, dict.fromkeys(range(trials), "finished"))
    return folder / STUDY


def noted(folder: Path, states: dict[int, str]) -> None:
    journal = Journal(folder)
    for number, state in states.items():
        key = ["s", f"trial-{number:04d}"]
        journal.append(do="run", key=key, name="t", parameters={}, tags={}, documents={})
        journal.append(do="state", key=key, state=state, reason="")
    journal.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> object:
    search = searcher(tmp_path_factory.mktemp("straight"))
    drive(search)
    return sequence(search)


def damage(path: Path, how: str) -> None:
    match how:
        case "missing":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case "truncated":
            os.truncate(path, path.stat().st_size // 2)
        case "no database":
            path.write_bytes(random.Random(0).randbytes(5000))
        case "a value":
            with closing(sqlite3.connect(path)) as study, study:
                study.execute("UPDATE trial_values SET value = value + 0.125 WHERE trial_id = 2")
        case "a point":
            with closing(sqlite3.connect(path)) as study, study:
                study.execute("UPDATE trial_params SET param_value = 32 WHERE param_name = 'batch'")
        case "a trial":
            with closing(sqlite3.connect(path)) as study, study:
                study.execute("DELETE FROM trials WHERE number = 3")


@pytest.mark.parametrize(
    "how", ["missing", "emptied", "truncated", "no database", "a value", "a point", "a trial"]
)
def test_any_damage_is_undone_by_the_copy(
    tmp_path: Path, how: str, undisturbed: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = begun(tmp_path)
    damage(path, how)
    heal_study(tmp_path)
    told = capsys.readouterr().err
    assert "copy" in told and "No trial is lost." in told
    aside = list(tmp_path.glob("quarantine/study.db"))
    assert len(aside) == (how != "missing"), "the damaged file is kept"
    resumed = searcher(tmp_path)
    drive(resumed)
    assert sequence(resumed) == undisturbed


def test_a_good_study_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = begun(tmp_path)
    before = path.read_bytes()
    heal_study(tmp_path)
    heal_study(tmp_path / "never begun")
    assert path.read_bytes() == before and not capsys.readouterr().err
    assert not (tmp_path / "never begun").exists()


def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path: Path) -> None:
    begun(tmp_path / "good")
    chance, found = random.Random(1), 0
    wanted = sequence(searcher(tmp_path / "good", trials=5))
    for attempt in range(60):
        folder = tmp_path / str(attempt)
        shutil.copytree(tmp_path / "good", folder)
        content = bytearray((folder / STUDY).read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (folder / STUDY).write_bytes(content)
        heal_study(folder)
        found += (folder / "quarantine").exists()
        assert sequence(searcher(folder, trials=5)) == wanted
    assert found >= 5


def test_a_copy_that_is_behind_neither_doubles_nor_loses_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = searcher(tmp_path)
    for turn in range(5):
        search.suggest(f"t{turn}")
        finish(search, f"t{turn}", float(turn))
    noted(tmp_path, dict.fromkeys(range(5), "finished"))
    copies_of(tmp_path / STUDY)[-1].unlink()
    damage(tmp_path / STUDY, "truncated")
    heal_study(tmp_path)
    assert "Trial 4 runs again, from the stages that it has trained." in capsys.readouterr().err
    resumed = searcher(tmp_path, trials=5)
    assert [record.state for record in resumed.records()] == ["COMPLETE"] * 4 + ["RUNNING"]
    config = resumed.suggest("again")
    assert isinstance(config, dict) and config["trial"] == 4
    finish(resumed, "again", 4.0)
    assert resumed.suggest("none") == "FINISHED" and len(resumed.records()) == 5


def test_a_damaged_copy_is_passed_over(tmp_path: Path) -> None:
    path = begun(tmp_path)
    older, newest = copies_of(path)
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    damage(path, "truncated")
    heal_study(tmp_path)
    assert path.read_bytes() == older.read_bytes()
    damage(path, "truncated")
    older.write_bytes(b"")
    with pytest.raises(Hindered, match="no good copy"):
        heal_study(tmp_path)


def test_without_a_copy_one_message_says_so_and_nothing_is_moved(tmp_path: Path) -> None:
    path = begun(tmp_path)
    shutil.rmtree(tmp_path / "copies")
    damage(path, "truncated")
    left = path.read_bytes()
    with pytest.raises(Hindered, match=r"study\.db must be as it was written, but it is damaged"):
        heal_study(tmp_path)
    assert path.read_bytes() == left
    damage(path, "emptied")
    with pytest.raises(Hindered, match="it is empty, although this sweep had trials"):
        heal_study(tmp_path)
    path.unlink()
    with pytest.raises(Hindered, match="it is missing, although this sweep had trials"):
        heal_study(tmp_path)


def test_the_rollback_journal_of_a_lost_study_is_not_played_into_the_copy(tmp_path: Path) -> None:
    path = begun(tmp_path)
    damage(path, "missing")
    path.with_name("study.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    heal_study(tmp_path)
    assert (tmp_path / "quarantine" / "study.db-journal").exists() and not damage_of_study(path)


def test_what_the_system_refuses_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begun(tmp_path)

    def refused(*given: object, **named: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr("stillhouse.core.databases.sqlite3.connect", refused)
    with pytest.raises(Hindered, match="It may be good: check the disk"):
        heal_study(tmp_path)
    assert path.exists() and not (tmp_path / "quarantine").exists()


def test_a_study_that_is_damaged_while_it_runs_keeps_its_good_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = begun(tmp_path, trials=4)
    copies = [copy.read_bytes() for copy in copies_of(path)]
    damage(path, "a value")
    search = searcher(tmp_path)
    assert "contradicts its copy" in capsys.readouterr().err
    search.suggest("more")
    assert [copy.read_bytes() for copy in copies_of(path)] == copies
