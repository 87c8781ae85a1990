"""A cluster of which one node lacks bfloat16: the teacher runs on the others."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from stillhouse.teachers import embedding
from stillhouse.teachers.shards import Work
from stillhouse.values.data import Store


@pytest.mark.ray
def test_a_node_without_the_precision_gets_no_teacher(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="m") as short:
        monkeypatch.setenv("RAY_TMPDIR", short)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            cluster.add_node(num_cpus=1, resources={"old": 1})
            ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
            here = ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().get_node_id())
            old = ray.get(here.options(resources={"old": 0.1}).remote())

            def able(kind: str) -> bool:
                return kind == "cpu" and ray.get_runtime_context().get_node_id() != old

            monkeypatch.setattr(embedding, "_has_bfloat16", able)
            work = Work(replace(store, compute="bfloat16"), tmp_path)
            chosen = embedding._able_nodes(work)
            found = {ray.get(here.options(**chosen).remote()) for _ in range(4)}
            assert chosen and old not in found
            assert "without bfloat16: --compute float32" in capsys.readouterr().err
            assert embedding._able_nodes(replace(work, store=store)) == {}, "float32 runs everywhere"
            monkeypatch.setattr(embedding, "_has_bfloat16", lambda kind: False)
            assert embedding._able_nodes(work) == {}, "an actor says it then"
        finally:
            ray.shutdown()
            cluster.shutdown()
