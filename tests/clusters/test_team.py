"""Two sweeps of a team at once: one cluster, one remote, one tracking server and one database."""

import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from browser import BROWSER, shown
from growing import Command, growing_cluster  # type: ignore[import-not-found]
from mlflow_process import free_port, mlflow_server
from postgres_server import postgres
from remote_content import rows_in  # type: ignore[import-not-found]
from small_experiment import sentences

pytestmark = [pytest.mark.ray, pytest.mark.long]  # `make cluster-test` runs it.
NAMES = ("one", "two")
TRIALS = 3
TEXTS = 60_000


def test_two_sweeps_share_a_remote_a_tracking_server_and_a_database(tmp_path: Path, tiny_model: Path) -> None:
    """The teacher runs once, and a database that stands still for 20 s loses nothing of either."""
    (tmp_path / "words.txt").write_text("\n".join(sentences(TEXTS)))
    (tmp_path / "mounted").mkdir()
    with (
        postgres() as database,
        tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as short,
        mlflow_server(tmp_path, port := free_port(), database.create("runs")),
        growing_cluster(Path(short), port=6741, node={"CPU": 1}, most=2) as cluster,
    ):
        studies, runs = database.create("studies"), f"http://127.0.0.1:{port}"
        variables = {**cluster.client, "STILLHOUSE_STUDY_DATABASE": studies, "MLFLOW_TRACKING_URI": runs}

        def begun(name: str) -> Command:
            words = (
                f"sweep mse --name {name} --corpus {tmp_path}/words.txt --teacher {tiny_model} --layers [0] "
                f"--sentences 0 --max-length 16 --distil-budget 200000 --trials {TRIALS} --scheduler none "
                f"--concurrency 1 --actors 1 --seed {NAMES.index(name)} --address {cluster.address} "
                f"--root {tmp_path}/{name} --remote {tmp_path}/mounted --json {tmp_path}/{name}.json"
            )
            return Command(words.split(), tmp_path / "elsewhere", variables)

        sweeps = [begun(name) for name in NAMES]
        for sweep in sweeps:
            sweep.wait_for(r"trial 0: [1-9][0-9,]* examples")
        database.signalled(signal.SIGSTOP)
        time.sleep(20)
        database.signalled(signal.SIGCONT)
        assert [sweep.wait() for sweep in sweeps] == [0, 0], [sweep.said for sweep in sweeps]
        assert [states_in(studies, name) for name in NAMES] == [["COMPLETE"] * TRIALS] * 2
        said = [sweep.said for sweep in sweeps]
        assert [states_of_runs(runs, name) for name in NAMES] == [{"FINISHED"}] * 2, said
        assert sum("embedding: " in each for each in said) == 1, said
        assert database.password not in "".join(said)
        if BROWSER:
            check_pages(runs, tmp_path / "browser")
    texts = rows_in(f"{tmp_path}/mounted")
    assert all(given == accounted for given, accounted in texts.values())
    assert sum(given for given, _ in texts.values()) == TEXTS
    for name in NAMES:
        report = json.loads((tmp_path / f"{name}.json").read_text())
        assert [trial["state"] for trial in report["trials"]] == ["COMPLETE"] * TRIALS


def check_pages(uri: str, folder: Path) -> None:
    """MLflow's pages show both sweeps; the trials are below their sweep's run."""
    from mlflow import MlflowClient

    client, experiments = MlflowClient(uri), shown(f"{uri}/#/experiments", folder)
    for name in NAMES:
        experiment: Any = client.get_experiment_by_name(f"stillhouse-{name}")
        (run,) = client.search_runs([experiment.experiment_id], "tags.`stillhouse.level` = 'sweep'")
        page = shown(f"{uri}/#/experiments/{experiment.experiment_id}/runs", folder)
        assert experiment.name in experiments and experiment.name in page
        assert f"/runs/{run.info.run_id}" in page, page


def states_in(studies: str, name: str) -> list[str]:
    return [trial.state.name for trial in optuna.load_study(study_name=name, storage=studies).trials]


def states_of_runs(uri: str, name: str) -> set[str]:
    """The states of a sweep's runs; each trial has one."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment: Any = client.get_experiment_by_name(f"stillhouse-{name}")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    trials = [run.info.run_name for run in runs if (run.info.run_name or "").startswith("trial")]
    assert len(trials) == len(set(trials)) == TRIALS, trials
    return {run.info.status for run in runs}
