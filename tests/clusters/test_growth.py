"""A sweep on a cluster that starts without any node: it brings nodes, uses later ones, frees them."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from growing import Command, GrowingCluster, growing_cluster  # type: ignore[import-not-found]
from small_experiment import sentences

pytestmark = [pytest.mark.ray, pytest.mark.long]  # `make cluster-test` runs it.
TEXTS = 300_000
RAY = Path(sys.executable).parent / "ray"


@pytest.fixture(scope="module")
def cluster() -> Iterator[GrowingCluster]:
    with tempfile.TemporaryDirectory(prefix="g", dir="/tmp") as short:
        with growing_cluster(Path(short), port=6731, node={"CPU": 1}, most=1) as running:
            yield running


def test_a_sweep_brings_its_nodes_and_frees_them(
    cluster: GrowingCluster, tmp_path: Path, tiny_model: Path
) -> None:
    (tmp_path / "words.txt").write_text("\n".join(sentences(TEXTS)))
    words = (
        f"sweep mse --corpus {tmp_path}/words.txt --teacher {tiny_model} --layers [0] --sentences 0 "
        "--max-length 16 --distil-budget 60000 --trials 6 --scheduler none "
        f"--address {cluster.address} --root {tmp_path}/runs --json {tmp_path}/r.json"
    )
    sweep = Command(words.split(), tmp_path / "elsewhere", cluster.client)
    sweep.wait_for("waiting up to 15:00 for nodes: a trial needs 1 CPU")
    sweep.wait_for("joined with 1 CPU: 2 nodes")
    sweep.wait_for(r"embedding: [1-9]")
    cluster.allow(2)
    sweep.wait_for("joined with 1 CPU: 3 nodes")
    assert sweep.wait() == 0, sweep.said
    report = json.loads((tmp_path / "r.json").read_text())
    assert [trial["state"] for trial in report["trials"]] == ["COMPLETE"] * 6
    deadline = time.monotonic() + 120
    while cluster.raylets() > 1:
        assert time.monotonic() < deadline, "nodes that nobody needs must go"
        time.sleep(1)


def test_a_need_that_no_node_has_is_refused_in_time(cluster: GrowingCluster, tmp_path: Path) -> None:
    sweep = Command(
        f"sweep mse --cpus-per-worker 2 --address {cluster.address} --root {tmp_path}/runs".split(),
        tmp_path / "elsewhere",
        cluster.client,
    )
    began = time.monotonic()
    assert sweep.process.wait(120) == 2 and time.monotonic() - began < 60, sweep.said
    assert "the workers of a trial must fit on the cluster" in sweep.said
    assert "autoscaler='it has no such nodes, or is at its limit'" in sweep.said


def test_a_trial_leaves_a_node_that_is_drained(
    cluster: GrowingCluster, tmp_path: Path, tiny_model: Path
) -> None:
    """It goes on elsewhere from a checkpoint of its last step, has not failed, and has the same weights."""
    (tmp_path / "words.txt").write_text("\n".join(sentences(2000)))
    cluster.allow(1)

    def begun() -> Command:
        words = (
            f"sweep mse --corpus {tmp_path}/words.txt --teacher {tiny_model} --layers [0] --sentences 0 "
            "--max-length 16 --distil-budget 400000 --trials 1 --scheduler none --concurrency 1 "
            f"--address {cluster.address} --root {tmp_path}/runs --json {tmp_path}/r.json"
        )
        return Command(words.split(), tmp_path / "elsewhere", cluster.client)

    undisturbed = begun()
    assert undisturbed.wait() == 0, undisturbed.said
    weights = _weights(tmp_path / "runs")
    (trial,) = json.loads((tmp_path / "r.json").read_text())["trials"]
    # The same sweep once more, without its trial.
    shutil.rmtree(tmp_path / "runs" / "sweeps")
    (stage,) = (name for name, sha256 in weights.items() if sha256 == trial["attributes"]["weights_sha256"])
    shutil.rmtree(tmp_path / "runs" / "stages" / stage)
    sweep = begun()
    sweep.wait_for(r"trial 0: [1-9][0-9,]* examples")
    (node,) = _asked(
        cluster, "[n['NodeID'] for n in ray.nodes() if n['Alive'] and n['Resources'].get('CPU')]"
    )
    drain = (
        f"drain-node --address {cluster.address} --node-id {node} --reason DRAIN_NODE_REASON_PREEMPTION "
        "--reason-message spot --deadline-remaining-seconds 20"
    )
    subprocess.run([str(RAY), *drain.split()], env={**os.environ, **cluster.client}, check=True, timeout=60)
    assert sweep.wait() == 0, sweep.said
    # A node that has nothing to do any more may go between two looks.
    assert re.search(r"is about to go in|has gone, as was announced", sweep.said), sweep.said
    assert "trial 0: its node is about to go; it continues from its checkpoint on another" in sweep.said
    assert _weights(tmp_path / "runs") == weights


def _asked(cluster: GrowingCluster, question: str) -> Any:
    """The answer of a client of the cluster to a question in Python."""
    script = (
        "import json, ray, sys; from stillhouse.cluster.nodes import nodes_to_come; "
        f"ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR'); print(json.dumps({question}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, cluster.address],
        env={**os.environ, **cluster.client},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def _weights(root: Path) -> dict[str, str]:
    """The hash of each stage's weights."""
    found = root.glob("stages/*/manifest.json")
    return {path.parent.name: json.loads(path.read_bytes())["weights_sha256"] for path in found}


def test_the_limits_on_the_head_are_known_to_a_driver_elsewhere(cluster: GrowingCluster) -> None:
    """Ray's launcher leaves its configuration in the home of the head's user, not of the client's."""
    kinds = {"head": {"resources": {"CPU": 0}}, "gpu": {"resources": {"CPU": 4, "GPU": 1}, "max_workers": 3}}
    content = {"head_node_type": "head", "max_workers": 8, "available_node_types": kinds}
    (cluster.folder / "ray_bootstrap_config.yaml").write_text(json.dumps(content))
    assert _asked(cluster, "nodes_to_come()") == [[{"CPU": 0.0}, 1.0], [{"CPU": 4.0, "GPU": 1.0}, 3.0]]
