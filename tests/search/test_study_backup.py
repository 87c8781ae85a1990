"""A damaged or lost study is replaced by its backup, and the sweep goes on as if undisturbed."""

import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from studies import drive, finish, searcher, sequence  # type: ignore[import-not-found]

from stillhouse.core.databases import damage_of_database
from stillhouse.core.errors import Hindered
from stillhouse.search.study_backup import STUDIES, STUDY, back_up_study, restore_studies


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study of which five of eight trials have ended, and its backup."""
    folder = tmp_path_factory.mktemp("half")
    drive(searcher(folder, trials=5))
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """All trials of the study, in one go."""
    search = searcher(tmp_path_factory.mktemp("straight"))
    drive(search)
    found: list[tuple[Any, ...]] = sequence(search)
    return found


def begun(half: Path, folder: Path) -> Path:
    """A study of which five trials have ended."""
    shutil.copytree(half, folder, dirs_exist_ok=True)
    return folder / STUDY


def damage(path: Path, how: str) -> None:
    match how:
        case "missing":
            path.unlink()
        case "truncated":
            os.truncate(path, path.stat().st_size // 2)
        case "no database":
            path.write_bytes(random.Random(0).randbytes(5000))


@each_row("how", ["missing", "truncated", "no database"])
def test_a_damaged_study_is_replaced_by_its_backup(
    tmp_path: Path,
    half: Path,
    undisturbed: list[tuple[Any, ...]],
    how: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = begun(half, tmp_path)
    damage(path, how)
    restore_studies(tmp_path)
    assert "Its backup is used" in capsys.readouterr().err
    aside = list(tmp_path.glob("quarantine/study.db"))
    assert len(aside) == (how != "missing"), "the damaged file is kept"
    resumed = searcher(tmp_path)
    assert "RUNNING" not in {each.state for each in resumed.records()}, "the last one that ended is in it"
    drive(resumed)
    assert sequence(resumed) == undisturbed


def test_a_good_study_is_left_alone(tmp_path: Path, half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = begun(half, tmp_path)
    before = path.read_bytes()
    restore_studies(tmp_path)
    restore_studies(tmp_path / "never begun")
    assert path.read_bytes() == before and not capsys.readouterr().err
    assert not (tmp_path / "never begun").exists()


def test_a_backup_that_is_behind_neither_doubles_nor_loses_a_trial(tmp_path: Path) -> None:
    search = searcher(tmp_path)
    for turn in range(5):
        search.suggest(f"t{turn}")
        if turn == 4:
            shutil.copyfile(tmp_path / STUDIES[STUDY], tmp_path / "earlier")
        finish(search, f"t{turn}", float(turn))
    shutil.copyfile(tmp_path / "earlier", tmp_path / STUDIES[STUDY])
    damage(tmp_path / STUDY, "truncated")
    restore_studies(tmp_path)
    resumed = searcher(tmp_path, trials=5)
    assert [record.state for record in resumed.records()] == ["COMPLETE"] * 4 + ["RUNNING"]
    config = resumed.suggest("again")
    assert isinstance(config, dict) and config["trial"] == 4
    finish(resumed, "again", 4.0)
    assert resumed.suggest("none") == "FINISHED" and len(resumed.records()) == 5


@pytest.mark.parametrize("backup", ["missing", "truncated"])
def test_without_a_good_backup_one_message_says_so_and_nothing_is_moved(
    tmp_path: Path, half: Path, backup: str
) -> None:
    path = begun(half, tmp_path)
    damage(path, "truncated")
    damage(tmp_path / STUDIES[STUDY], backup)
    left = path.read_bytes()
    with pytest.raises(Hindered, match=r"study\.db must be a database .* is damaged .* no good backup"):
        restore_studies(tmp_path)
    assert path.read_bytes() == left


def test_the_rollback_journal_of_a_lost_study_is_not_played_into_the_backup(
    tmp_path: Path, half: Path
) -> None:
    path = begun(half, tmp_path)
    damage(path, "missing")
    path.with_name("study.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    restore_studies(tmp_path)
    assert (tmp_path / "quarantine" / "study.db-journal").exists() and not damage_of_database(path)


def test_what_the_system_refuses_is_not_called_damaged(
    tmp_path: Path, half: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begun(half, tmp_path)

    def refused(*given: object, **named: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr("stillhouse.core.databases.sqlite3.connect", refused)
    with pytest.raises(Hindered, match="It may be good: check the disk"):
        restore_studies(tmp_path)
    assert path.exists() and not (tmp_path / "quarantine").exists()


def test_a_study_that_is_damaged_while_it_runs_keeps_its_good_backup(
    tmp_path: Path, half: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = begun(half, tmp_path)
    before = (tmp_path / STUDIES[STUDY]).read_bytes()
    damage(path, "truncated")
    back_up_study(path)
    assert "is damaged" in capsys.readouterr().err
    assert (tmp_path / STUDIES[STUDY]).read_bytes() == before
