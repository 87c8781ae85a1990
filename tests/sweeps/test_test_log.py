"""Every opening of a locked test suite is counted, per suite."""

import json

from stillhouse.core.artifacts import Workspace
from stillhouse.sweeps.test_log import record_test_use


def test_openings_are_counted_per_suite(workspace: Workspace) -> None:
    assert [record_test_use(workspace, "a", "sweep one") for _ in range(3)] == [0, 1, 2]
    assert record_test_use(workspace, "b", "sweep one") == 0
    assert record_test_use(workspace, "a", "a person") == 3
    lines = (workspace.root / "openings.jsonl").read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [entry["suite"] for entry in noted] == ["a", "a", "a", "b", "a"]
    assert noted[-1]["what"] == "a person" and noted[-1]["time"].endswith("Z")


def test_the_log_has_no_secret(workspace: Workspace) -> None:
    record_test_use(workspace, "a", "s3://ann:hunter2@bucket/model")
    assert json.loads((workspace.root / "openings.jsonl").read_text())["what"] == "s3://***@bucket/model"
