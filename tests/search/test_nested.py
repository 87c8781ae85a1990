"""A sweep whose trials have two workers each, from texts to a student. As a script, this is its driver."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from listening import is_loopback, seen_while_it_runs

ROOT = Path(__file__).resolve().parents[2]
BUDGET, BATCH, EVALUATIONS = 1024, 32, 4
QUALITY = "agreement_spearman_cosine"
SPACE = """
method: ibkd
search:
  space:
    distil_learning_rate: [1e-9, 5e-3]
  fixed:
    distil_batch_size: 32
  first:
    distil_learning_rate: 1e-9
"""
"""A random teacher's own layers are the best student there is: who learns nothing wins, for certain."""


def main(arguments: list[str]) -> int:
    """Run the command; record the cluster resources in use before it ends."""
    import ray

    from stillhouse.cli.main import main as command
    from stillhouse.cluster.connection import disconnect
    from stillhouse.sweeps import session

    def note_and_leave() -> None:
        states = [group["state"] for group in ray.util.placement_group_table().values()]
        Path("placement_groups.json").write_text(json.dumps(states))
        disconnect()

    with patch.object(session, "disconnect", note_and_leave):
        return command(arguments)


def words(count: int) -> str:
    random = np.random.default_rng(0)
    nouns = "cat dog sat mat house river water sun moon red green blue fast slow array list text".split()
    lines = [" ".join(random.choice(nouns, random.integers(4, 10))) for _ in range(count)]
    return "\n".join(lines) + "\n"


@pytest.mark.ray
@pytest.mark.long
def test_trials_of_two_workers_on_two_cpus(tmp_path: Path, tiny_model: Path, ray_folder: str) -> None:
    """One trial completes and one is stopped.

    No resources stay reserved, no metric is written twice, and no process listens beyond this machine.
    """
    (tmp_path / "words.txt").write_text(words(600))
    (tmp_path / "space.yaml").write_text(SPACE)
    flags = {
        "workers": 2,
        "trials": 2,
        "baseline-trials": 1,
        "sampler": "grid",
        "space": "space.yaml",
        "full": 0,
        "teacher": tiny_model,
        "corpus": "words.txt",
        "layers": "every-other",
        "distil-budget": BUDGET,
        "evaluations": EVALUATIONS,
        "set": "sentences.held_out=60",
        "compute": "float32",
        "device": "cpu",
        "root": "runs",
        "json": "report.json",
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "platform"), str(ROOT / "tests"))),
        "RAY_AUTH_MODE": "disabled",
        "RAY_TMPDIR": ray_folder,
        "OMP_NUM_THREADS": "1",
    }
    command = [
        sys.executable,
        __file__,
        "sweep",
        "ibkd",
        *(text for name, value in flags.items() for text in (f"--{name}", str(value))),
    ]
    with (tmp_path / "output.txt").open("w") as output:
        ran = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True
        )
        sockets = seen_while_it_runs(ran)
    assert ran.returncode == 0, (tmp_path / "output.txt").read_text()

    assert [pair for pair in sockets if not is_loopback(pair[0])] == []
    assert any("RayTrainWorker" in name for _, name in sockets), f"no rank was seen: {sockets}"
    assert list(tmp_path.glob("runs/ray/*")) == [], "the file by which the ranks met is gone"

    states = json.loads((tmp_path / "placement_groups.json").read_text())
    assert len(states) >= 3 and set(states) == {"REMOVED"}

    report = json.loads((tmp_path / "report.json").read_text())
    check_trials(report["trials"])
    assert report["student"]["trial"] == 0 and Path(report["student"]["export"]).is_dir()
    assert duplicated_metrics(tmp_path / "runs" / "mlflow.db") == []


def check_trials(trials: list[dict[str, Any]]) -> None:
    """Check that the first completed and the other stopped at the first rung; the last report counts."""
    assert [trial["state"] for trial in trials] == ["COMPLETE", "PRUNED"]
    full, stopped = trials
    quarters = [BUDGET * part // EVALUATIONS for part in range(1, EVALUATIONS + 1)]
    assert [examples for examples, _ in full["curve"]] == quarters
    assert full["examples"] == BUDGET
    assert full["values"] == [full["metrics"][QUALITY]] == [max(value for _, value in full["curve"])]
    assert [examples for examples, _ in stopped["curve"]] == quarters[:1]
    assert stopped["values"] == [stopped["curve"][0][1]] and stopped["values"] < full["values"]


def duplicated_metrics(database: Path) -> list[Any]:
    """Return figures that MLflow stores more than once for one run and step."""
    with sqlite3.connect(database) as connection:
        counted = "select run_uuid, key, step, count(*) as times from metrics group by run_uuid, key, step"
        return connection.execute(f"select * from ({counted}) where times > 1").fetchall()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
