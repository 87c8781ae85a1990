"""Every opening of a locked test suite is counted, per suite."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.sweeps import test_log
from stillhouse.sweeps.test_log import record_test_use, suite_in


def test_openings_are_counted_per_suite(workspace: Workspace) -> None:
    assert [record_test_use(workspace, "a", "sweep one") for _ in range(3)] == [0, 1, 2]
    assert record_test_use(workspace, "b", "sweep one") == 0
    assert record_test_use(workspace, "a", "a person") == 3
    lines = (workspace.root / "openings.jsonl").read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [entry["suite"] for entry in noted] == ["a", "a", "a", "b", "a"]
    assert noted[-1]["what"] == "a person" and noted[-1]["time"].endswith("Z")


def test_commands_at_once_are_counted_one_after_another(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(line: bytes) -> str | None:
        time.sleep(0.02)
        return suite_in(line)

    monkeypatch.setattr(test_log, "suite_in", slow)
    record_test_use(workspace, "a", "a person")
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: record_test_use(workspace, "a", "a sweep"), range(4)))
    assert sorted(counts) == [1, 2, 3, 4]


def test_the_log_has_no_secret(workspace: Workspace) -> None:
    record_test_use(workspace, "a", "s3://ann:hunter2@bucket/model")
    assert json.loads((workspace.root / "openings.jsonl").read_text())["what"] == "s3://***@bucket/model"
