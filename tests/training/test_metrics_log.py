import json
from pathlib import Path

from metrics_lines import read_metrics  # type: ignore[import-not-found]

from stillhouse.training.metrics_log import MetricsLog


def steps(path: Path) -> list[int]:
    return [line["step"] for line in read_metrics(path)]


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
    assert set(line) == {"step", "examples", "time", "metrics", "check"} and line["metrics"] == {"loss": 1.5}
