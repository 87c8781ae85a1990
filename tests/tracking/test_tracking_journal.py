from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.tracking.journal import LOST, Journal, stamp


def run(journal: Journal, key: tuple[str, ...], **changes: Any) -> bool:
    entry: dict[str, Any] = {"name": "n", "parameters": {}, "tags": {}, "documents": {}}
    return journal.append(do="run", key=key, **{**entry, **changes})


def entries(journal: Journal, position: int = 0) -> list[dict[str, Any]]:
    return [entry for entry, _ in journal.read(position)]


def test_a_metric_has_one_value_per_step(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.append(do="metrics", key=("s",), rows=[[1, 10, {"loss": 0.5}], [2, 20, {"loss": 0.4}]])
    assert not journal.append(do="metrics", key=("s",), rows=[[2, 99, {"loss": 0.4}]])
    assert journal.append(
        do="metrics", key=("s",), rows=[[2, 30, {"loss": 0.3, "mrr": 0.7}], [3, 40, {"loss": 0.2}]]
    )
    assert entries(journal)[1]["rows"] == [[2, 30, {"mrr": 0.7}], [3, 40, {"loss": 0.2}]]


def test_the_same_command_again_writes_nothing(tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    picture.write_bytes(b"1")
    for _ in range(2):
        journal = Journal(tmp_path / "journal")
        run(journal, ("s",), parameters={"a": "1"})
        run(journal, ("s", "t"))
        journal.append(do="metrics", key=("s", "t"), rows=[[1, 10, {"loss": float("nan")}]])
        journal.append(do="artifact", key=("s",), path=str(picture), folder="", stamp=stamp(picture))
        journal.append(do="state", key=("s", "t"), state="finished")
        journal.append(do="state", key=("s",), state="finished")
        journal.close()
    assert len(entries(journal)) == 6
    picture.write_bytes(b"2")
    journal = Journal(tmp_path / "journal")
    assert journal.append(do="artifact", key=("s",), path=str(picture), folder="", stamp=stamp(picture))


def test_a_failed_run_is_reopened_and_a_finished_one_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    run(journal, ("s",))
    for state, again in (
        ("failed", True),
        ("interrupted", True),
        ("finished", False),
        ("stopped early", False),
    ):
        key = ("s", state)
        run(journal, key, time=1)
        journal.append(do="state", key=key, state=state)
        assert run(journal, key, time=2) is again


def test_a_failed_run_that_is_told_of_once_more_is_not_reopened(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    run(journal, ("s",), time=1)
    journal.append(do="state", key=("s",), state="failed")
    assert not run(journal, ("s",), time=1)


def test_a_new_trial_reopens_a_finished_sweep(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    run(journal, ("s",))
    journal.append(do="state", key=("s",), state="finished")
    before = journal.size
    run(journal, ("s", "t"))
    written = [(entry["do"], entry["key"], entry.get("state")) for entry in entries(journal, before)]
    assert written == [("state", ["s"], "running"), ("run", ["s", "t"], None)]


def test_a_last_line_cut_by_a_kill_is_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    run(journal, ("s",))
    run(journal, ("s", "t"))
    journal.close()
    first, second = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(first + second[:-5])
    journal = Journal(tmp_path)
    assert len(entries(journal)) == 1 and not (tmp_path / "quarantine").exists()
    assert run(journal, ("s", "t"))
    assert [entry["key"] for entry in entries(journal)] == [["s"], ["s", "t"]]


def test_a_damaged_line_is_skipped_reported_and_recorded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(tmp_path)
    run(journal, ("s",))
    for name in "tu":
        run(journal, ("s", name))
    journal.close()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(lines[0] + b"\xff" + lines[1][1:] + lines[2])
    again = Journal(tmp_path)
    assert [entry["do"] for entry in entries(again)] == ["run", LOST, "run"]
    assert "1 damaged lines" in capsys.readouterr().err
    assert again.id == journal.id and run(again, ("s", "t")) and not run(again, ("s", "u"))


@each_row("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"a": '])
@each_row("name", ["confirmed.json", "registered.json", "identity.json", "journal.jsonl"])
def test_no_damage_of_any_file_stops_the_next_command(tmp_path: Path, name: str, content: bytes) -> None:
    journal = Journal(tmp_path)
    run(journal, ("s",))
    journal.confirm("http://x", journal.size)
    journal.keep_version("m", "w", "3")
    journal.close()
    (tmp_path / name).write_bytes(content)
    again = Journal(tmp_path)
    assert 0 <= again.confirmed("http://x") <= again.size and len(again.read(0)) <= 1
    again.versions()
    again.append(do="state", key=("s",), state="running")
    again.confirm("http://x", again.size)
    assert again.confirmed("http://x") == again.size


def test_each_destination_has_its_own_position(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    run(journal, ("s",))
    run(journal, ("s", "t"))
    first = journal.read(0)[0][1]
    journal.confirm("https://user:secret@here", first)
    assert journal.confirmed("https://user:secret@here") == first
    assert journal.confirmed("http://there") == 0
    assert journal.waiting({("run",): first, ("artifact",): 0}) == 1
    assert "secret" not in "".join(p.read_text() for p in tmp_path.iterdir())


def test_the_stamp_of_a_folder_depends_on_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "a").write_text("2")
    assert stamp(tmp_path) != before


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    left = tmp_path / ".confirmed.json.abcdefgh.tmp"
    left.write_text("{")
    Journal(tmp_path).close()
    assert not left.exists() and (tmp_path / "journal.jsonl").exists()
