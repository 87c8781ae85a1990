"""A damaged journal loses what was damaged, says so, and never stops a command."""

import random
from pathlib import Path

import pytest

from stillhouse.tracking.journal import LOST, Journal


def filled(folder: Path) -> Journal:
    journal = Journal(folder)
    journal.append(do="run", key=["s"], name="s", parameters={}, tags={}, documents={})
    for step in range(5):
        journal.append(do="metrics", key=["s"], rows=[[step, 1000 + step, {"loss": 1.0}]])
    journal.append(do="state", key=["s"], state="finished", reason="")
    return journal


def test_a_damaged_line_is_skipped_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path).close()
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:8] + b"\xff" + lines[2][9:]
    path.write_bytes(b"".join(lines))
    journal = Journal(tmp_path)
    kinds = [entry["do"] for entry, _ in journal.read(0)]
    assert kinds == ["run", "metrics", LOST, "metrics", "metrics", "metrics", "state"]
    assert "1 damaged lines" in capsys.readouterr().err
    assert journal.append(do="metrics", key=["s"], rows=[[1, 1001, {"loss": 1.0}]]), (
        "it can be recorded again"
    )
    journal.close()


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
        again.append(do="state", key=["s"], state="running")
        again.confirm("http://x", again.size)
        assert again.confirmed("http://x") == again.size
        again.close()
