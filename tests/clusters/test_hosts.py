"""clusters/hosts.yaml is read by Ray's provider for machines that exist, and lists all of them as workers."""

import socket
from pathlib import Path

import pytest
from launchers import CLUSTERS, prepared, tags  # type: ignore[import-not-found]


def test_all_machines_are_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.autoscaler._private.local import config as local
    from ray.autoscaler._private.local import node_provider

    monkeypatch.setattr(local, "get_default_ray_temp_dir", lambda: str(tmp_path))
    monkeypatch.setattr(socket, "gethostbyname", lambda host: host)
    config = local.bootstrap_local(prepared(CLUSTERS / "hosts.yaml"))
    listed = config["provider"]["worker_ips"]
    assert config["max_workers"] == len(listed)
    provider = node_provider.LocalNodeProvider(config["provider"], config["cluster_name"])
    (kind,) = config["available_node_types"].values()
    assert kind["min_workers"] == kind["max_workers"] == len(listed)
    provider.create_node({}, tags("local.cluster.node", "worker"), len(listed))
    assert sorted(provider.non_terminated_nodes({"ray-node-type": "worker"})) == sorted(listed)
