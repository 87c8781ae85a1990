"""How many trials run at once as nodes come and go, which ones can never fit, and waiting for nodes."""

import itertools
import math
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rows import each_row

from stillhouse.cluster import nodes, resources, slots
from stillhouse.cluster.nodes import Autoscaler, Nodes, launched
from stillhouse.cluster.resources import Need, cluster_device, has_room_here, teacher_actors
from stillhouse.cluster.slots import RoomWatch, Slots, wait_for_room
from stillhouse.core.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
TWO_CPUS: Nodes = [({"CPU": 2.0}, 1)]
HEAD: Nodes = [({"CPU": 0.0}, 1)]
SPOT: Nodes = [({"CPU": 0.0}, 1), ({"CPU": 16.0, "GPU": 1.0}, 8), ({"CPU": 16.0}, 4)]


class Cluster:
    """What Ray would tell of a cluster.

    Attributes:
        up: Nodes that are alive.
        to_come: Nodes that an autoscaler may run, if it tells its limits.
        autoscaler: What it reports; None without one.
        looks: Looks after which what was asked for is there.
    """

    def __init__(self) -> None:
        self.up: Nodes = HEAD
        self.to_come: Nodes = []
        self.autoscaler: Autoscaler | None = None
        self.looks = math.inf


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    told = Cluster()
    for module in (resources, slots):
        monkeypatch.setattr(module, "nodes_up", lambda: told.up)
        monkeypatch.setattr(module, "nodes_to_come", lambda: told.to_come)
        monkeypatch.setattr(module, "autoscaler", lambda: told.autoscaler)
    monkeypatch.setattr(resources, "started_here", lambda: False)
    return told


def slots_now(need: Need, limit: int = 0) -> int:
    return Slots(need, limit)()


def test_without_a_cluster_there_is_room_here() -> None:
    assert has_room_here(Need(cpus=10_000))


@each_row(("cpus", "room"), [(0.0, False), (1.0, False), (2.0, True), (3.0, True)])
def test_a_node_has_room_for_a_model_if_it_has_for_one_worker(
    cpus: float, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head without CPUs runs trials of several workers, which only wait there, but no model."""
    import ray

    own = SimpleNamespace(get_node_id=lambda: "head")
    head = {"CPU": cpus, "node:__internal_head__": 1.0}
    told = [{"NodeID": "a", "Resources": {"CPU": 64.0}}, {"NodeID": "head", "Resources": head}]
    monkeypatch.setattr(resources, "ray_runs", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: told)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: own)
    assert has_room_here(Need(workers=2, cpus=2)) == has_room_here(Need(cpus=2)) == room


@each_row(
    ("up", "need", "fit"),
    [
        (TWO_CPUS, Need(), 2),
        (TWO_CPUS, Need(cpus=0.5), 4),
        (TWO_CPUS, Need(workers=2), 1),
        ([({"CPU": 2.0}, 3)], Need(workers=2, cpus=2), 1),
        (SPOT, Need(gpus=1), 8),
        (SPOT, Need(workers=2, cpus=8, gpus=1), 4),
        (SPOT, Need(cpus=8), 24),
        (HEAD, Need(), 1),
        ([({"CPU": 99.0, "GPU": 1.0}, 1)], Need(gpus=0.2), 5),
        ([({"CPU": 99.0, "GPU": 1.0}, 1)], Need(gpus=0.1), 10),
        ([({"CPU": 99.0, "GPU": 8.0}, 1)], Need(gpus=0.6), 8),
        ([({"CPU": 99.0, "GPU": 8.0}, 1)], Need(gpus=0.3), 24),
    ],
)
def test_on_nodes_that_stay_as_many_trials_run_as_fit(
    cluster: Cluster, up: Nodes, need: Need, fit: int
) -> None:
    """If all nodes are lost, one trial waits for the next."""
    cluster.up = up
    assert slots_now(need) == fit and slots_now(need, limit=1) == 1


@each_row(("gpu_nodes", "begun"), [(0, 4), (1, 4), (2, 4), (3, 6), (4, 8), (7, 8), (8, 8), (9, 9)])
def test_where_the_limits_are_known_twice_as_many_are_begun_as_fit(
    cluster: Cluster, gpu_nodes: int, begun: int
) -> None:
    cluster.up, cluster.to_come = [*HEAD, ({"CPU": 16.0, "GPU": 1.0}, gpu_nodes)], SPOT
    assert slots_now(Need(gpus=1)) == begun and slots_now(Need(gpus=1), limit=3) == 3


def test_a_cluster_without_limit_grows_as_far_as_trials_need(cluster: Cluster) -> None:
    cluster.up, cluster.to_come = [({"CPU": 4.0}, 100)], [({"CPU": 4.0}, math.inf)]
    assert slots_now(Need()) == 800 and slots_now(Need(), limit=500) == 500


@each_row(("cpu_nodes", "begun"), [(0, 1), (1, 2), (2, 3), (8, 12)])
def test_where_the_limits_are_unknown_some_more_are_begun_than_fit(
    cluster: Cluster, cpu_nodes: int, begun: int
) -> None:
    cluster.up, cluster.autoscaler = [*HEAD, ({"CPU": 1.0}, cpu_nodes)], Autoscaler()
    assert slots_now(Need()) == begun


def test_the_number_follows_the_nodes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_LOOK_S", 0.0)
    cluster.up = TWO_CPUS
    at_once = Slots(Need())
    assert at_once() == 2
    cluster.up = [({"CPU": 2.0}, 3)]
    assert at_once() == 6 and pickle.loads(pickle.dumps(at_once))() == 6
    cluster.up = HEAD
    assert at_once() == 1


@each_row(
    ("up", "grown", "need"),
    [
        (TWO_CPUS, [], Need(workers=3)),
        (TWO_CPUS, [], Need(gpus=1)),
        (HEAD, [], Need()),
        ([({"CPU": 2.0}, 8)], [], Need(cpus=4)),
        (HEAD, [({"CPU": 16.0}, 4), ({"GPU": 1.0}, 4)], Need(gpus=1)),
    ],
)
def test_trials_that_never_fit_are_refused_at_once(
    cluster: Cluster, up: Nodes, grown: Nodes, need: Need
) -> None:
    """In the last two cases the nodes have enough CPUs together, but none has enough for one worker."""
    cluster.up, cluster.to_come = up, grown
    with pytest.raises(BadInput, match="the workers of a trial must fit on the cluster"):
        wait_for_room(need, joined=bool(grown))


def test_what_fits_now_or_on_nodes_that_may_come_is_not_waited_for(cluster: Cluster) -> None:
    cluster.up = TWO_CPUS
    wait_for_room(Need(workers=2), joined=False)
    cluster.up, cluster.to_come = HEAD, SPOT
    wait_for_room(Need(gpus=1))


class Group:
    """A placement group that is ready after some looks."""

    def __init__(self, looks: float, on_look: Any) -> None:
        self.looks, self.on_look = looks, on_look

    def wait(self, seconds: float) -> bool:
        self.looks -= 1
        self.on_look()
        return self.looks <= 0


@pytest.fixture
def reserved(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The bundles that were reserved and, at the end, whether all were freed; a look takes 5 s."""
    import ray

    asked, clock, held = list[Any](), [0.0], list[Group]()

    def reserve(bundles: list[dict[str, float]]) -> Group:
        asked.append(bundles)
        held.append(Group(cluster.looks, lambda: clock.__setitem__(0, clock[0] + 5.0)))
        return held[-1]

    monkeypatch.setattr(ray.util, "placement_group", reserve)
    monkeypatch.setattr(ray.util, "remove_placement_group", held.remove)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    yield asked
    assert not held, "what was reserved must be freed"


def test_nodes_are_asked_for_and_waited_for(
    cluster: Cluster, reserved: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.autoscaler, cluster.looks = Autoscaler(), 9
    wait_for_room(Need(workers=2, cpus=4, gpus=1))
    assert reserved == [[{"CPU": 4, "GPU": 1}] * 2]
    said = capsys.readouterr().err
    assert "waiting up to 15:00 for nodes: a trial needs 2 x 4 CPU + 1 GPU" in said
    assert "the autoscaler was asked" in said and "the nodes have come, after 0:45" in said


@pytest.mark.parametrize(
    ("given", "autoscaler", "limit", "why"),
    [
        (None, None, "0:20", ""),
        (60.0, None, "1:00", ""),
        (None, Autoscaler(launching=("2 x gpu",)), "15:00", "the autoscaler is starting 2 x gpu"),
        (
            7.0,
            Autoscaler(failed=("gpu (no quota)",)),
            "0:07",
            "the autoscaler could not start gpu (no quota)",
        ),
    ],
)
def test_waiting_has_an_end(
    cluster: Cluster,
    reserved: list[Any],
    given: float | None,
    autoscaler: Autoscaler | None,
    limit: str,
    why: str,
) -> None:
    cluster.autoscaler = autoscaler
    with pytest.raises(
        BadInput, match=f"no nodes for 1 CPU came within {limit}.*--wait-for-nodes"
    ) as refused:
        wait_for_room(Need(), given)
    assert why in str(refused.value)


def test_what_an_autoscaler_calls_impossible_is_refused_soon(cluster: Cluster, reserved: list[Any]) -> None:
    """What it refuses of others does not matter."""
    cluster.autoscaler = Autoscaler(impossible=({"CPU": 1.0, "GPU": 8.0},))
    with pytest.raises(BadInput, match="it has no such nodes, or is at its limit"):
        wait_for_room(Need(gpus=8), 3600.0)
    with pytest.raises(BadInput, match="came within 1:00:00"):
        wait_for_room(Need(gpus=1), 3600.0)


def test_a_moment_at_the_limit_is_waited_for(
    cluster: Cluster, reserved: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An autoscaler at its limit calls impossible what it can start when others have ended."""
    told = itertools.cycle([Autoscaler(impossible=({"CPU": 1.0, "GPU": 8.0},)), Autoscaler()])
    monkeypatch.setattr(slots, "autoscaler", lambda: next(told))
    cluster.looks = 9
    wait_for_room(Need(gpus=8), 3600.0)


def test_the_launched_cluster_can_grow_to_the_size_in_its_file(cluster: Cluster) -> None:
    """Ray 2.60 has no API for its autoscaler's limit; the launcher leaves its file on the head node."""
    cluster.to_come = launched((ROOT / "cluster.yaml").read_text())
    assert ({"CPU": 0.0}, 1.0) in cluster.to_come
    assert cluster.to_come.count(({"CPU": 16.0, "GPU": 1.0}, 4.0)) == 3
    assert slots_now(Need(workers=4, cpus=4, gpus=1)) == 3
    assert teacher_actors("cuda") == 12 and teacher_actors("cuda", grown=False) == 1


def test_teachers_have_no_limit_where_the_autoscaler_tells_none(cluster: Cluster) -> None:
    cluster.up = [({"CPU": 16.0, "GPU": 2.0}, 2)]
    assert teacher_actors("cuda") == 4 and teacher_actors("cpu") == 32
    cluster.autoscaler = Autoscaler()
    assert teacher_actors("cuda") == resources.MOST and teacher_actors("cuda", grown=False) == 4


def test_kubernetes_runs_an_autoscaler_whatever_it_tells(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not resources.grows()
    monkeypatch.setenv("RAY_USAGE_STATS_KUBERAY_IN_USE", "1")
    assert resources.grows()
    monkeypatch.setattr(resources, "started_here", lambda: True)
    assert not resources.grows(), "a Ray of one's own in a pod"


def test_the_device_is_a_gpu_where_there_is_one_or_one_may_come(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster_device("auto") == "cpu" and capsys.readouterr().err == ""
    cluster.autoscaler = Autoscaler()
    assert cluster_device("auto") == "cpu" and "--device cuda" in capsys.readouterr().err
    cluster.to_come = SPOT
    assert cluster_device("auto") == "cuda" and cluster_device("cpu") == "cpu"


def test_what_an_autoscaler_reports_is_read() -> None:
    from ray.core.generated.autoscaler_pb2 import AutoscalingState

    state = AutoscalingState()
    state.pending_instance_requests.add(ray_node_type_name="gpu", count=2)
    state.pending_instances.add(ray_node_type_name="gpu")
    for reason in ("no quota", "no quota "):
        state.failed_instance_requests.add(ray_node_type_name="spot", reason=reason)
    gang = state.infeasible_gang_resource_requests.add()
    gang.requests.add(resources_bundle={"CPU": 1.0, "GPU": 4.0})
    state.infeasible_resource_requests.add(resources_bundle={"CPU": 64.0})
    found = nodes.reported(state)
    assert found.launching == ("3 x gpu",) and found.failed == ("spot (no quota)",)
    assert found.impossible == ({"CPU": 64.0}, {"CPU": 1.0, "GPU": 4.0})
    assert Autoscaler().in_words == "the autoscaler was asked"


def test_a_run_whose_workers_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two requests of Ray Train, and beside other requests, it is the same wait."""
    groups: dict[str, Any] = {}
    now, own, told = [100.0], [""], list[tuple[float, float | None]]()
    monkeypatch.setattr("ray.util.placement_group_table", lambda: groups)
    monkeypatch.setattr(time, "time", lambda: now[0])
    watch = RoomWatch(Need(workers=2), lambda: own[0], lambda *times: told.append(times))

    def look(seconds: float, **states: str) -> None:
        groups.clear()
        bundles = {"other": {0: {"CPU": 1.0}}}
        for name, state in states.items():
            groups[name] = {"state": state, "bundles": bundles.get(name, {0: {"CPU": 1.0}, 1: {"CPU": 1.0}})}
        now[0] += seconds
        watch.look()

    look(0, other="PENDING")
    assert not told, "another run asks for something else"
    look(2, first="PENDING")
    assert told == [(102, None)]
    look(60, first="PENDING")
    look(2, first="REMOVED")
    look(2, first="REMOVED", second="PENDING")
    assert told == [(102, None)], "it has asked again"
    look(2, first="REMOVED", second="CREATED")
    look(4, first="REMOVED", second="CREATED")
    assert told == [(102, None), (102, 166)]
    own[0] = "second"
    look(2, second="CREATED", third="PENDING")
    assert len(told) == 2, "its workers run, and another run waits"
    look(2, second="REMOVED", third="PENDING")
    assert told[2:] == [(176, None)], "a node was lost"
