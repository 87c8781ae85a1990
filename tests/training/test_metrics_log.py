import json
from pathlib import Path

import pytest
from metrics_lines import read_metrics

from stillhouse.training import metrics_log
from stillhouse.training.estimate import course_in
from stillhouse.training.metrics_log import MetricsLog, Pulse


def steps(path: Path) -> list[int]:
    return [line["step"] for line in read_metrics(path)]


def seen_in(folder: Path) -> tuple[int, float]:
    """How many examples a stage has seen, and when that was noted."""
    course = course_in(folder)
    return course.seen, course.at


def test_lines_after_the_checkpoint_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in (1, 2, 2, 3, 4):
        log.append(step, step * 8, {"loss": 1.0})
    log.close()
    again = MetricsLog(path, after=2)
    assert steps(path) == [1, 2, 2]
    again.append(3, 24, {"loss": 2.0})
    again.close()
    assert steps(path) == [1, 2, 2, 3]


def test_an_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.append(1, 8, {"loss": 1.0})
    log.append(2, 16, {"loss": 1.0})
    log.close()
    whole = path.read_bytes()
    for length in range(len(whole) // 2 + 1, len(whole)):
        path.write_bytes(whole[:length])
        assert steps(path) == [1]
        again = MetricsLog(path, after=9)
        again.append(2, 16, {"loss": 3.0})
        again.close()
        assert steps(path) == [1, 2]
        path.write_bytes(whole)


def test_without_a_checkpoint_it_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).append(5, 40, {"loss": 1.0})
    MetricsLog(path).close()
    assert path.read_bytes() == b""


def test_a_line_records_its_time(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).append(5, 40, {"loss": 1.5})
    line = json.loads(path.read_text())
    assert set(line) == {"step", "examples", "time", "metrics"} and line["metrics"] == {"loss": 1.5}


def test_a_pulse_tells_what_was_seen_since_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("stillhouse.training.metrics_log.time.monotonic", lambda: now[0])
    monkeypatch.setattr("stillhouse.training.metrics_log.time.time", lambda: 10_000 + now[0])
    assert seen_in(tmp_path) == (0, 0.0)
    log, pulse = MetricsLog(tmp_path / "metrics.jsonl"), Pulse(tmp_path)
    log.append(1, 8, {"loss": 1.0})
    assert pulse.due() and seen_in(tmp_path) == (8, 10_100)
    now[0] = 103
    pulse.beat(24)
    assert seen_in(tmp_path) == (24, 10_103) and not pulse.due()
    now[0] += metrics_log.PULSE_S
    assert pulse.due()
    log.append(5, 40, {"loss": 1.0})
    assert seen_in(tmp_path) == (40, 10_108), "the log may be ahead of the pulse"
    log.close()


def test_a_pulse_that_is_damaged_or_of_an_earlier_run_tells_nothing(tmp_path: Path) -> None:
    Pulse(tmp_path).beat(48)
    path = tmp_path / "checkpoints" / "pulse.json"
    path.write_bytes(path.read_bytes()[:-9])
    assert seen_in(tmp_path) == (0, 0.0)
    Pulse(tmp_path).beat(48)
    assert seen_in(tmp_path)[0] == 48
    Pulse(tmp_path)
    assert seen_in(tmp_path) == (0, 0.0), "the next run begins at its checkpoint, not where the last one died"


def test_training_does_not_end_because_its_pulse_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    Pulse(tmp_path).beat(48)
    assert seen_in(tmp_path) == (0, 0.0)
