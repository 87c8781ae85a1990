import json
import subprocess
import sys
import time
from pathlib import Path

from stillhouse.tracking import Key, MetricsTail, Row, flatten, provenance

STAGE: Key = ("sweep", "trial", "stage")


def line(step: int, loss: float = 0.5, at: float = 1000.0) -> str:
    return json.dumps({"step": step, "examples": step * 32, "time": at, "metrics": {"loss": loss}}) + "\n"


class Received:
    def __init__(self) -> None:
        self.rows: list[tuple[Key, Row]] = []

    def __call__(self, key: Key, rows: list[Row]) -> None:
        self.rows += [(key, row) for row in rows]

    @property
    def steps(self) -> list[int]:
        return [row.step for _, row in self.rows]


def test_parameters_are_flattened() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": None}}, "e": (1, 2)}) == {
        "a.b": "1",
        "a.c.d": "None",
        "e": "(1, 2)",
    }


def test_provenance_names_the_packages() -> None:
    found = provenance()
    assert found["version.torch"].startswith("2.")
    assert found["python"].startswith("3.")


def test_importing_the_contract_imports_no_mlflow() -> None:
    modules = "stillhouse.tracking, stillhouse.tracking.mlflow_tracker"
    code = f"import sys, {modules}; sys.exit('mlflow' in sys.modules)"
    folder = Path(__file__).parents[2] / "platform"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(folder)}).returncode == 0


def test_a_log_is_followed_from_before_it_exists(tmp_path: Path) -> None:
    received, log = Received(), tmp_path / "stage" / "metrics.jsonl"
    tail = MetricsTail(received, every_s=0.01)
    tail.follow(STAGE, log)
    time.sleep(0.03)
    log.parent.mkdir()
    log.write_text(line(1, loss=0.25, at=12.5))
    deadline = time.monotonic() + 5
    while not received.rows and time.monotonic() < deadline:
        time.sleep(0.01)
    tail.close()
    assert received.rows == [(STAGE, Row(1, 12.5, {"examples": 32.0, "loss": 0.25}))]


def test_a_line_is_forwarded_once_it_is_complete(tmp_path: Path) -> None:
    received, log = Received(), tmp_path / "metrics.jsonl"
    tail = MetricsTail(received, every_s=60)
    tail.follow(STAGE, log)
    log.write_text(line(1) + line(2)[:-20])
    tail.poll()
    assert received.steps == [1]
    log.write_text(line(1) + line(2))
    tail.close()
    assert received.steps == [1, 2]


def test_a_truncated_log_that_grew_past_the_offset_is_read_again(tmp_path: Path) -> None:
    received, log = Received(), tmp_path / "metrics.jsonl"
    tail = MetricsTail(received, every_s=60)
    tail.follow(STAGE, log)
    log.write_text(line(10) + line(20) + line(30))
    tail.poll()
    log.write_text(line(10) + "".join(line(step, at=2000.0) for step in (20, 30, 40, 50)))
    tail.close()
    assert received.steps[3:] == [10, 20, 30, 40, 50]


def test_a_truncated_log_is_read_again(tmp_path: Path) -> None:
    received, log = Received(), tmp_path / "metrics.jsonl"
    tail = MetricsTail(received, every_s=60)
    tail.follow(STAGE, log)
    log.write_text(line(10) + line(20))
    tail.poll()
    log.write_text(line(10))
    tail.poll()
    log.write_text(line(10) + line(20, at=2000.0) + line(30))
    tail.close()
    assert set(received.steps) == {10, 20, 30}
    assert received.steps[-1] == 30


def test_a_line_truncated_by_a_killed_worker_is_skipped(tmp_path: Path) -> None:
    received, log = Received(), tmp_path / "metrics.jsonl"
    tail = MetricsTail(received, every_s=60)
    tail.follow(STAGE, log)
    log.write_text(line(1) + line(2)[:10] + line(3) + line(4))
    tail.close()
    assert received.steps == [1, 4]
