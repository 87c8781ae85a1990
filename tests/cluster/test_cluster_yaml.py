"""Ray's launcher accepts cluster.yaml, which has the shape described in the documentation."""

from pathlib import Path
from typing import Any

import pytest
import yaml

PATH = Path(__file__).resolve().parents[2] / "cluster.yaml"


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(PATH.read_text())
    return loaded


def test_ray_accepts_it(config: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))


def test_the_head_is_on_demand_and_runs_no_work(config: dict[str, Any]) -> None:
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"]["CPU"] == 0
    assert "InstanceMarketOptions" not in head["node_config"]
    assert any("--num-cpus=0" in command for command in config["head_start_ray_commands"])


def test_gpu_workers_are_spot_first_with_an_on_demand_fallback(config: dict[str, Any]) -> None:
    types = config["available_node_types"]
    spot, fallback = types["gpu-spot"], types["gpu-on-demand"]
    assert spot["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in fallback["node_config"]
    assert spot["priority"] > fallback["priority"]
    assert spot["min_workers"] == fallback["min_workers"] == 0


def test_it_contains_no_credentials_and_no_public_address(config: dict[str, Any]) -> None:
    text = PATH.read_text().lower()
    assert "aws_access_key" not in text and "secret" not in text and "begin rsa" not in text
    assert config["provider"]["use_internal_ips"] is True
    assert config["idle_timeout_minutes"] > 0
    assert all("0.0.0.0" not in command for command in config["head_start_ray_commands"])
