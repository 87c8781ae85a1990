"""The launcher's files, filled in, as Ray reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "clusters"
FILL_IN = "FILL-IN"


def prepared(path: Path, fill_in: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """What `ray up` makes of a file before it asks the cloud; it is checked as `ray up` does."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = yaml.safe_load(path.read_text())
    fill_in(config)
    ready: dict[str, Any] = prepare_config(config)
    validate_config(ready)
    return ready


def tags(node_type: str, kind: str) -> dict[str, str]:
    """The tags with which Ray's launcher creates a node."""
    return {
        "ray-node-type": kind,
        "ray-node-name": f"ray-stillhouse-{kind}",
        "ray-user-node-type": node_type,
        "ray-node-status": "uninitialized",
        "ray-launch-config": "0",
    }


def node_configs(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each type of node is created with; the head's role is added by Ray."""
    head = config["head_node_type"]
    kinds = {name: kind["node_config"] for name, kind in config["available_node_types"].items()}
    return {**kinds, head: {**kinds[head], **config.get("head_node", {})}}
