"""Lines of logs: every flipped bit is told, and lines of older versions are read."""

import json
import random
from pathlib import Path

import pytest

from stillhouse.core.lines import CHECK, checked_line, heal_twice, parse_line, read_twice

ENTRY = {"step": 3, "time": 12.5, "metrics": {"loss": 0.25, "nan": float("inf")}, "name": "Größe"}


def test_what_is_written_is_read() -> None:
    line = checked_line(ENTRY)
    assert line.endswith(b"}\n") and line.count(b"\n") == 1
    assert parse_line(line) == parse_line(line.rstrip(b"\n")) == ENTRY
    assert list(json.loads(line)) == [*ENTRY, CHECK]


def test_no_flipped_bit_is_read() -> None:
    line = checked_line(ENTRY)
    for bit in range(8 * (len(line) - 1)):
        damaged = bytearray(line)
        damaged[bit // 8] ^= 1 << bit % 8
        assert all(parse_line(part) is None for part in bytes(damaged).splitlines(keepends=True)), damaged


def test_a_cut_line_is_damaged() -> None:
    line = checked_line(ENTRY)
    assert not any(parse_line(line[:length]) for length in range(len(line) - 1))


def test_a_line_of_an_older_version_is_believed() -> None:
    assert parse_line(b'{"step": 3}\n') == {"step": 3}
    assert parse_line(b"[3]\n") is None and parse_line(b"\n") is None


LINES = [checked_line({"step": step, "text": "x" * (step % 3)}) for step in range(6)]
WHOLE = b"".join(LINES)
OTHERS = b"".join(checked_line({"step": step, "text": "another"}) for step in range(9))


@pytest.mark.parametrize(
    ("ours", "theirs", "taken"),
    [
        (WHOLE, WHOLE, 0),
        (WHOLE, b"", 0),
        (b"", WHOLE, 6),
        (WHOLE + b'{"step": 6, "te', WHOLE, 0),
        (WHOLE, WHOLE[: -len(LINES[-1])], 0),
        (WHOLE + b'{"step": 6, "te', WHOLE[: -len(LINES[-1])], 0),
        (WHOLE[: -len(LINES[-1])], WHOLE, 1),
        (WHOLE[:-20], WHOLE, 1),
        (WHOLE[5:], WHOLE, 1),
        (WHOLE.replace(LINES[2], b""), WHOLE, 1),
        (WHOLE.replace(b"\n", b"\x0b", 2), WHOLE, 3),
        (WHOLE.replace(b'"step":1', b'"step":3'), WHOLE.replace(LINES[5], b""), 1),
        (WHOLE.replace(b'"step":1', b'"step":3'), WHOLE.replace(b'"step":4', b'"step":5'), 1),
        (WHOLE, OTHERS, 0),
        (random.Random(0).randbytes(300), WHOLE, 6),
    ],
    ids=(
        "equal, no copy, no log, cut in writing, the copy lags, the copy lags behind a cut log, lines lost, "
        "cut, start lost, a line removed, ends of lines, damaged before the copy was written, both damaged, "
        "of another log, random bytes"
    ).split(", "),
)
def test_a_log_written_twice_is_read(tmp_path: Path, ours: bytes, theirs: bytes, taken: int) -> None:
    path, copy = tmp_path / "log.jsonl", tmp_path / "log.copy.jsonl"
    for file, content in ((path, ours), (copy, theirs)):
        if content:
            file.write_bytes(content)
    assert read_twice(path, copy) == (WHOLE, taken)
    assert heal_twice(path, copy) == taken
    assert path.read_bytes() == copy.read_bytes() == WHOLE
    assert read_twice(path, copy) == (WHOLE, 0)


def test_a_copy_whose_lines_have_other_places_is_left_out(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.jsonl", tmp_path / "log.copy.jsonl"
    path.write_bytes(WHOLE.replace(LINES[1], b"??\n"))
    copy.write_bytes(WHOLE.replace(b'"step":4', b'"step":5'))
    assert read_twice(path, copy) == (path.read_bytes(), 0)


def test_a_line_damaged_in_both_files_stays_as_it_is(tmp_path: Path) -> None:
    damaged = WHOLE.replace(b'"step":1', b'"step":3')
    for name in ("log.jsonl", "log.copy.jsonl"):
        (tmp_path / name).write_bytes(damaged)
    assert heal_twice(tmp_path / "log.jsonl", tmp_path / "log.copy.jsonl") == 0
    assert (tmp_path / "log.jsonl").read_bytes() == damaged
