"""A cluster without a shared disk loses nodes, and then itself: the remote has what a new one needs."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow_process import free_port, mlflow_server
from remote_content import rows_in, stages_in  # type: ignore[import-not-found]
from s3_server import CREDENTIALS, needs_moto, new_bucket
from separate_nodes import Cluster, Job, Loss, cluster_of_separate_nodes  # type: ignore[import-not-found]
from small_experiment import sentences

from stillhouse.core.remotes import remote_at

pytestmark = [pytest.mark.ray, pytest.mark.long, needs_moto]  # `make cluster-test` runs it.
TRIALS = 3
TEXTS = 120_000
EMBEDDED, OF_TRIAL = r"embedding: ([0-9,]+)", r"trial {}(?:, [a-z-]+)?: ([0-9,]+) (?:of|examples)"
HANGS_S = 180.0
"""Seconds after which work that was disturbed should long have gone on."""


class Team:
    """What outlives a cluster: the corpus, the teacher, the tracking server and the buckets.

    Args:
        folder: Where all of it is.
        teacher: Folder of the teacher.
        runs: Address of the tracking server.
    """

    def __init__(self, folder: Path, teacher: Path, runs: str) -> None:
        self.folder, self.teacher, self.runs = folder, teacher, runs
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # Jobs are run by `python`.
        self.environment = {**CREDENTIALS, "PATH": path, "HF_HUB_OFFLINE": "1", "MLFLOW_TRACKING_URI": runs}
        self.corpus = folder / "words.txt"
        self.corpus.write_text("\n".join(sentences(TEXTS)))

    def sweep(
        self,
        cluster: Cluster,
        name: str,
        remote: str,
        *more: str,
        trials: int = TRIALS,
        refits: int = 1,
        epochs: int = 1,
    ) -> Job:
        """Submit a sweep whose driver and workers keep nothing but in their own disks and the remote."""
        words = (
            f"--name {name} --corpus {self.corpus} --teacher {self.teacher} --layers [0] --sentences 0 "
            "--max-length 16 --pairs 0 --distil-budget 60000 --finetune-budget 0 "
            f"--set distil_epochs={epochs} --set budget.refit.distil=60000 --set budget.refit.finetune=0 "
            f"--set budget.refit.top={refits} --select agreement --trials {trials} --scheduler none "
            f"--concurrency 1 --address auto --root {cluster.disk}/{name} --remote {remote} "
            f"--json {self.folder}/{name}.json"
        )
        return cluster.submit("jobs/sweep_ibkd.py", *words.split(), *more)

    def report(self, name: str) -> Any:
        """What a sweep has written at its end."""
        return json.loads((self.folder / f"{name}.json").read_text())

    def states_of_trials(self, name: str) -> list[tuple[str, str]]:
        """Name and state of each run of a trial, by name; the best one's name says so."""
        from mlflow import MlflowClient

        client = MlflowClient(self.runs)
        experiment: Any = client.get_experiment_by_name(f"stillhouse-{name}")
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        found = [((run.info.run_name or "").partition(" (")[0], run.info.status) for run in runs]
        return sorted(each for each in found if each[0].startswith("trial"))


def tell(calm: Job, seconds: dict[Loss, float]) -> None:
    """Print how long each loss took to get over, which `pytest -s` shows, and refuse what hangs."""
    print("\nfrom a loss until the next line that is further than before it, and as long without the loss:")
    for loss, took in seconds.items():
        print(f"  {loss.what:<50}{took:6.1f} s{loss.undisturbed(calm):8.1f} s")
    assert max(seconds.values()) < HANGS_S, seconds


@pytest.fixture
def team(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with mlflow_server(tmp_path, port := free_port()):
        yield Team(tmp_path, tiny_model, f"http://127.0.0.1:{port}")


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        yield Path(folder)


def test_nodes_and_then_the_whole_cluster_are_lost(team: Team, short: Path) -> None:
    """A new cluster ends the search with the same trials and weights as one that nobody disturbed."""
    calm, disturbed = new_bucket(), new_bucket()
    with cluster_of_separate_nodes(short / "1", base=6751, host=2, environment=team.environment) as cluster:
        undisturbed = team.sweep(cluster, "calm", calm)
        assert undisturbed.wait() == 0, undisturbed.said
        assert "tokenising words-train: " in undisturbed.said, "by the nodes, before the first trial"
        # The head has no CPU: it tests, exports and draws nothing, and has what others wrote.
        assert "what follows runs on another node, since this one has less" in undisturbed.said
        remote = remote_at(calm)
        assert remote is not None
        brought = remote.listed("sweeps/calm")
        assert brought is not None and {"export/model.safetensors", "figures/sweep.html"} <= brought.keys()
        sweep = team.sweep(cluster, "disturbed", disturbed)
        sweep.wait_for(r"embedding: [1-9]")
        embedding = Loss.of(sweep, "a node, while the teacher embeds", EMBEDDED)
        cluster.kill("a")
        cluster.add("c")
        sweep.wait_for(r"trial 0(, [a-z-]+)?: [1-9][0-9,]* (of|examples)")
        one = Loss.of(sweep, "the node of a trial", OF_TRIAL.format(0))
        cluster.kill(cluster.node_that_runs("ray::ImplicitFunc"))
        cluster.add("d")
        sweep.wait_for(r"trial 1(, [a-z-]+)?: [1-9][0-9,]* (of|examples)")
        assert "was lost" in sweep.said
        whole = Loss.of(sweep, "the cluster; from the submission to a new one", OF_TRIAL.format(1))
    sweep.forget()
    shutil.rmtree(short / "1")
    with cluster_of_separate_nodes(short / "2", base=6761, host=12, environment=team.environment) as cluster:
        again = team.sweep(cluster, "disturbed", disturbed)
        assert again.wait() == 0, again.said
        lost = {embedding: embedding.seconds(sweep), one: one.seconds(sweep)}
        tell(undisturbed, {**lost, whole: whole.seconds(again, since=again.began)})
        assert "going on from the remote (finished trials: " in again.said
        assert "embedding: " not in again.said, "the store of the first cluster is used"
    assert [trial["state"] for trial in team.report("disturbed")["trials"]] == ["COMPLETE"] * TRIALS
    one_each = [(f"trial {number}", "FINISHED") for number in range(TRIALS)]
    assert team.states_of_trials("disturbed") == team.states_of_trials("calm") == one_each
    assert stages_in(disturbed) == stages_in(calm) and len(stages_in(calm)) >= TRIALS
    assert rows_in(disturbed) == rows_in(calm)
    assert all(given == accounted for given, accounted in rows_in(calm).values())
    assert sum(given for given, _ in rows_in(calm).values()) == TEXTS


def test_a_node_is_lost_under_a_run_of_several_workers(team: Team, short: Path) -> None:
    """Its ranks are on two nodes that read shards by windows; what they have trained goes on with a third."""
    calm, disturbed = new_bucket(), new_bucket()
    # The first of many evaluations comes early, so that most of the trial is ahead when the node is lost.
    wide = "--workers 2 --cpus-per-worker 1 --sentences 20000 --evaluations 8".split()
    wide += ["--set", "budget.shard_window=2"]
    with cluster_of_separate_nodes(short / "1", base=6771, host=22, environment=team.environment) as cluster:
        undisturbed = team.sweep(cluster, "wide-calm", calm, *wide, trials=1, refits=0, epochs=3)
        assert undisturbed.wait() == 0, undisturbed.said
        sweep = team.sweep(cluster, "wide", disturbed, *wide, trials=1, refits=0, epochs=3)
        sweep.wait_for(r"trial 0: [1-9][0-9,]* examples, ")
        ranks = Loss.of(sweep, "the node of one of a trial's two workers", OF_TRIAL.format(0))
        cluster.kill(cluster.node_that_runs("ray::RayTrainWorker"))
        cluster.add("c")
        assert sweep.wait() == 0, sweep.said
        assert "was lost" in sweep.said
        tell(undisturbed, {ranks: ranks.seconds(sweep)})
    assert [trial["state"] for trial in team.report("wide")["trials"]] == ["COMPLETE"]
    assert team.states_of_trials("wide") == team.states_of_trials("wide-calm") == [("trial 0", "FINISHED")]
    assert stages_in(disturbed) == stages_in(calm) and len(stages_in(calm)) > 1
    assert rows_in(disturbed) == rows_in(calm)
