"""A damaged journal loses what was damaged, says so, and never stops a command."""

import random
from pathlib import Path

import pytest

from stillhouse.core.notes import copy_of
from stillhouse.tracking.journal import LOST, NAME, Journal, damaged_lines


def filled(folder: Path) -> Journal:
    journal = Journal(folder)
    journal.append(do="run", key=["s"], name="s", parameters={}, tags={}, documents={})
    for step in range(5):
        journal.append(do="metrics", key=["s"], rows=[[step, 1000 + step, {"loss": 1.0}]])
    journal.append(do="state", key=["s"], state="finished", reason="")
    return journal


def with_damage(path: Path) -> None:
    """Damage the third line."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:8] + b"\xff" + lines[2][9:]
    path.write_bytes(b"".join(lines))


def test_a_line_damaged_in_both_files_is_skipped_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    path = tmp_path / NAME
    for file in (path, copy_of(path)):
        with_damage(file)
    assert damaged_lines(tmp_path) == (0, 1)
    journal = Journal(tmp_path)
    kinds = [entry["do"] for entry, _ in journal.read(0)]
    assert kinds == ["run", "metrics", LOST, "metrics", "metrics", "metrics", "state"]
    assert "1 damaged lines" in capsys.readouterr().err
    assert journal.append(do="metrics", key=["s"], rows=[[1, 1001, {"loss": 1.0}]]), (
        "it can be recorded again"
    )
    journal.close()


def test_a_damaged_line_is_taken_from_the_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path).close()
    path = tmp_path / NAME
    before = path.read_bytes()
    with_damage(path)
    assert damaged_lines(tmp_path) == (1, 0)
    Journal(tmp_path).close()
    assert path.read_bytes() == copy_of(path).read_bytes() == before
    assert "1 damaged or missing lines" in capsys.readouterr().err
    assert len(list((tmp_path / "quarantine").iterdir())) == 1
    assert damaged_lines(tmp_path) == (0, 0)


def test_no_damage_of_any_file_stops_the_next_command(tmp_path: Path) -> None:
    chance = random.Random(0)
    for attempt in range(120):
        folder = tmp_path / str(attempt)
        journal = filled(folder)
        journal.confirm("http://x", 10)
        journal.keep_version("m", "w", "3")
        identity = journal.id
        journal.close()
        path = chance.choice(sorted(path for path in folder.iterdir() if path.is_file()))
        content = bytearray(path.read_bytes())
        match attempt % 3:
            case 0:
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            case 1:
                del content[chance.randrange(len(content)) :]
            case 2:
                content[:] = chance.randbytes(20)
        path.write_bytes(content)
        again = Journal(folder)
        assert 0 <= again.confirmed("http://x") <= again.size
        assert len(again.read(0)) <= 8
        again.versions()
        assert again.id == identity, "the copy is used"
        assert [entry["do"] for entry, _ in again.read(0)] == ["run", *["metrics"] * 5, "state"], (
            "of the log too"
        )
        again.append(do="state", key=["s"], state="running")
        again.confirm("http://x", again.size)
        assert again.confirmed("http://x") == again.size
        again.close()
