"""Nodes that join a cluster and nodes that it loses are told, each once."""

import tempfile
import time
from collections.abc import Callable
from typing import Any

import pytest
from patience import STUCK_S

from stillhouse.cluster.membership import Membership, Node, nodes_watched
from stillhouse.cluster.nodes import Autoscaler

HEAD = Node("a", "head (10.0.0.4)", "nothing")
BIG, SMALL = Node("b", "gpu-1 (10.0.0.7)", "16 CPU + 1 GPU"), Node("c", "cpu-1 (10.0.0.9)", "2 CPU")


def test_what_has_changed_since_the_last_look_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    alive, joined = [HEAD, SMALL], list[Node]()
    membership = Membership(lambda: alive, joined.append, lambda: None, dict, set)
    membership.look()
    assert capsys.readouterr() == ("", "")
    alive = [HEAD, BIG]
    membership.look()
    said = capsys.readouterr()
    joining = "  node gpu-1 (10.0.0.7) joined with 16 CPU + 1 GPU: 2 nodes\n"
    lost = "node cpu-1 (10.0.0.9) with 2 CPU was lost, 2 nodes left: what ran there goes on elsewhere."
    assert said.err in (f"{joining}stillhouse: {lost}\n", f"stillhouse: {lost}\n{joining}")
    assert joined == [BIG]
    membership.look()
    assert capsys.readouterr() == ("", "")


def test_a_node_that_is_about_to_go_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    going = {"c": time.time() + 20, "elsewhere": 0.0}
    membership = Membership(lambda: [HEAD, SMALL], autoscaler=lambda: None, draining=lambda: going)
    membership.look()
    membership.look()
    said = "node cpu-1 (10.0.0.9) is about to go in 0:20: what runs there goes on elsewhere."
    assert capsys.readouterr().err == f"stillhouse: {said}\n"


def test_a_node_that_goes_between_two_looks_was_announced_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alive = [HEAD, BIG, SMALL]
    membership = Membership(lambda: alive, autoscaler=lambda: None, draining=dict, announced=lambda: {"c"})
    membership.look()
    alive = [HEAD]
    membership.look()
    said = capsys.readouterr().err
    assert "node cpu-1 (10.0.0.9) with 2 CPU has gone, as was announced, 1 node left: what ran there" in said
    assert "node gpu-1 (10.0.0.7) with 16 CPU + 1 GPU was lost, 1 node left: what ran there" in said


def test_what_an_autoscaler_does_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes that are being started whenever they change, what cannot be started once."""
    reports = iter(
        [
            None,
            Autoscaler(launching=("2 x gpu",)),
            Autoscaler(launching=("2 x gpu",), failed=("gpu (no quota)",), impossible=({"GPU": 8.0},) * 3),
            Autoscaler(),
            Autoscaler(launching=("1 x cpu",), failed=("gpu (no quota)",), impossible=({"GPU": 8.0},)),
        ]
    )
    membership = Membership(lambda: [HEAD], autoscaler=lambda: next(reports), draining=dict)
    said = []
    for _ in range(5):
        membership.look()
        said.append(capsys.readouterr().err)
    assert said == [
        "",
        "  the autoscaler is starting 2 x gpu\n",
        "stillhouse: the autoscaler could not start gpu (no quota): what needs it waits.\n"
        "  no node for 8 GPU can be started now: the autoscaler is at its limit, or has none\n",
        "",
        "  the autoscaler is starting 1 x cpu\n",
    ]


def wait_for(condition: Callable[[], bool], seconds: float = STUCK_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.long
def test_real_raylets_come_and_go(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from ray.cluster_utils import Cluster

    said = ""

    def heard(words: str) -> bool:
        nonlocal said
        said += "".join(capsys.readouterr())
        return words in said

    joined: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="m") as short:
        # Ray writes the cluster's address below this folder, and does not make the one of the machine.
        monkeypatch.setenv("RAY_TMPDIR", short)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
            with nodes_watched(joined.append, every_s=0.2):
                node = cluster.add_node(num_cpus=3)
                wait_for(lambda: heard("joined with 3 CPU: 2 nodes"))
                cluster.remove_node(node, allow_graceful=False)
                wait_for(lambda: heard("with 3 CPU was lost, 1 node left"))
        finally:
            ray.shutdown()
            cluster.shutdown()
    assert [each.room for each in joined] == ["3 CPU"]
