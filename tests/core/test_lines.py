"""Lines of logs: every flipped bit is told, and lines of older versions are read."""

import json

from stillhouse.core.lines import CHECK, checked_line, parse_line

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
