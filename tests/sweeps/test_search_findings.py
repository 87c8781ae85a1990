"""What doctor says of a search before any data is read."""

from pathlib import Path
from typing import Any

import pytest
from small_experiment import quick_experiment

from stillhouse.cli.main import main
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Categorical, Space
from stillhouse.sweeps.search_findings import search_findings


def found(folder: Path, model: Path, domains: dict[str, Any], batch: int) -> list[tuple[str, str]]:
    space = Space("mse", domains, fixed={"batch_size": batch})
    options = SweepOptions("s", "mse", space, quick_experiment(folder, model), folder)
    return [(finding.level, finding.found) for finding in search_findings(options)]


def test_refused_points_idle_dimensions_and_missed_rungs_are_found(tmp_path: Path, tiny_model: Path) -> None:
    domains: dict[str, Any] = {
        "optimizer": Categorical(("adam", "adamw")),
        "weight_decay": Categorical((0.01, 0.0)),
        "finetune_learning_rate": Categorical((1e-5, 1e-4)),
    }
    refused, idle, missed = found(tmp_path, tiny_model, domains, batch=64)
    assert refused[0] == idle[0] == "note" and missed[0] == "warning"
    assert refused[1].startswith("2 of 8 points are refused, and not tried: `weight_decay > 0 with optimizer")
    assert "nothing depends on finetune_learning_rate, which a sweep leaves out" in idle[1]
    assert "1 of 1 points at which asha judges fall on another evaluation" in missed[1]
    assert found(tmp_path, tiny_model, {"learning_rate": Categorical((1e-4, 1e-3))}, batch=4) == []


def test_doctor_says_them(tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick_experiment(tmp_path, tiny_model)
    data = ["--corpus", str(tmp_path / "words.txt"), "--sentences", "0", "--set", "sentences.held_out=20"]
    flags = ["--teacher", str(tiny_model), *data, "--max-length", "16", "--device", "cpu"]
    main(["doctor", "mse", *flags, "--root", str(tmp_path / "runs"), "--distil-budget", "1024"])
    printed = capsys.readouterr().out
    assert "note (search): with these budgets and data nothing depends on finetune_learning_rate" in printed
