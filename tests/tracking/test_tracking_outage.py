"""A real tracking server that is away, hangs, dies and comes back while metrics keep arriving."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow_process import free_port, mlflow_server, wait_for

from stillhouse.tracking import Row
from stillhouse.tracking.mlflow_tracker import MLflowTracker

SWEEP = ("s1",)


class Driver:
    """A driver that records one trial after another and keeps the time of the slowest call."""

    def __init__(self, tracker: MLflowTracker) -> None:
        self.tracker, self.slowest_s = tracker, 0.0

    def call(self, record: Callable[..., None], *arguments: Any) -> None:
        started = time.monotonic()
        record(*arguments)
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)

    def trial(self, number: int, seconds: float = 0.0) -> None:
        key = ("s1", f"t{number}")
        self.call(self.tracker.run, SWEEP, "sweep")
        self.call(self.tracker.run, key, f"trial {number}", {"number": number})
        for step in range(20):
            self.call(self.tracker.metrics, key, [Row(step, 1e9 + step, {"loss": number + step / 100})])
            time.sleep(seconds / 20)
        self.call(self.tracker.finish, key)

    def all_sent(self) -> bool:
        return self.tracker.journal.confirmed(self.tracker.uri) == self.tracker.journal.size


def check(uri: str, trials: int) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    assert sorted(run.info.run_name for run in found) == sorted(
        ["sweep", *(f"trial {i}" for i in range(trials))]
    )
    for run in found:
        if run.info.run_name != "sweep":
            number = int(run.data.params["number"])
            points = [
                (m.step, m.value, m.timestamp) for m in client.get_metric_history(run.info.run_id, "loss")
            ]
            assert points == [(s, number + s / 100, (10**9 + s) * 1000) for s in range(20)]
            assert run.info.status == "FINISHED"


@pytest.fixture
def port(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of a server, whose database is there; it is asked often, and must answer within a second."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr("stillhouse.tracking.mlflow_tracker._BACKOFF_S", (0.2,))
    shutil.copy(database, tmp_path / "server.db")
    return free_port()


def test_a_server_that_is_away_at_first_and_then_hangs_loses_nothing(tmp_path: Path, port: int) -> None:
    uri = f"http://127.0.0.1:{port}"
    driver = Driver(MLflowTracker(uri, "tests", tmp_path / "sweep"))
    driver.trial(0)
    driver.trial(1)
    waits = driver.tracker.close(5)
    assert "has not accepted" in waits and str(tmp_path) in waits
    with mlflow_server(tmp_path, port) as group:
        again = Driver(MLflowTracker(uri, "tests", tmp_path / "sweep"))
        again.trial(1)
        wait_for(again.all_sent, "what was recorded before the server started has arrived")
        os.killpg(group, signal.SIGSTOP)
        again.trial(2, seconds=1.5)
        os.killpg(group, signal.SIGCONT)
        again.trial(3, seconds=0.2)
        assert again.tracker.close(15) == ""
        check(uri, trials=4)
    assert max(driver.slowest_s, again.slowest_s) < 0.5, "the server is asked for a second"


@pytest.mark.long
def test_a_server_that_hangs_dies_and_comes_back_loses_nothing(tmp_path: Path, port: int) -> None:
    uri = f"http://127.0.0.1:{port}"
    driver = Driver(MLflowTracker(uri, "tests", tmp_path / "sweep"))
    driver.trial(0)
    with mlflow_server(tmp_path, port) as group:
        wait_for(driver.all_sent, "what was recorded before the server started has arrived")
        os.killpg(group, signal.SIGSTOP)
        driver.trial(1, seconds=1.5)
        os.killpg(group, signal.SIGCONT)
        driver.trial(2, seconds=0.2)
        wait_for(driver.all_sent, "what was recorded while the server hung has arrived")
    driver.trial(3)
    waits = driver.tracker.close(5)
    assert "has not accepted" in waits and str(tmp_path) in waits
    with mlflow_server(tmp_path, port):
        again = Driver(MLflowTracker(uri, "tests", tmp_path / "sweep"))
        again.trial(3)
        again.trial(4)
        assert again.tracker.close(15) == ""
        check(uri, trials=5)
    assert max(driver.slowest_s, again.slowest_s) < 0.5, "the server is asked for a second"
