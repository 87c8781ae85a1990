"""`ray up clusters/gcp.yaml` against Google's own description of its API: no request has an unknown field.

The cloud itself is not simulated: quotas, permissions, and which machine types a zone has are not tested.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from launchers import CLUSTERS, FILL_IN, node_configs, prepared, tags  # type: ignore[import-not-found]

discovery = pytest.importorskip("googleapiclient.discovery", reason="the extra `gcp` is not installed")

HEAD = "ray-autoscaler-sa-v1@project.iam.gserviceaccount.com"
ANSWERS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "GET",
        r"resourcemanager[^/]*/v1/projects/[^/:]+$",
        {"projectId": "project", "lifecycleState": "ACTIVE"},
    ),
    ("GET", r"/serviceAccounts/", {"email": HEAD, "projectId": "project"}),
    ("POST", r":getIamPolicy", {"bindings": []}),
    ("POST", r":setIamPolicy", {}),
    ("GET", r"/compute/v1/projects/[^/]+$", {"name": "project", "commonInstanceMetadata": {"items": []}}),
    ("POST", r"/setCommonInstanceMetadata", {"name": "operation"}),
    ("GET", r"/operations/", {"name": "operation", "status": "DONE"}),
    ("POST", r"/instances$", {"name": "operation"}),
]


class Cloud:
    """Answers requests from the table, and keeps them."""

    credentials = None

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []

    def request(self, uri: str, method: str = "GET", body: Any = None, **_: Any) -> tuple[Any, bytes]:
        import httplib2

        path = uri.partition("?")[0]
        self.requests.append((f"{method} {path}", json.loads(body) if body else None))
        answer = [found for verb, rule, found in ANSWERS if verb == method and re.search(rule, path)]
        assert answer, f"{method} {uri} is not expected"
        return httplib2.Response({"status": "200"}), json.dumps(answer[0]).encode()


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Stands in for the transport below Google's client; the client checks parameters by its description."""
    import ray.autoscaler._private.gcp.config as bootstrap
    import ray.autoscaler._private.gcp.node as node
    import ray.autoscaler._private.gcp.node_provider as provider

    there = Cloud()
    monkeypatch.setenv("HOME", str(tmp_path))
    apis = (("cloudresourcemanager", "v1"), ("iam", "v1"), ("compute", "v1"))
    clients = [discovery.build(*api, http=there, static_discovery=True) for api in apis]
    for module in (bootstrap, provider):
        monkeypatch.setattr(module, "construct_clients_from_provider_config", lambda _: (*clients, None))
    monkeypatch.setattr(node.GCPCompute, "get_new_authorized_http", lambda _, http: http)
    return there


def filled(config: dict[str, Any]) -> None:
    text = json.dumps(config).replace(FILL_IN, "1")
    config.clear()
    config.update(json.loads(text))


def schemas() -> dict[str, Any]:
    """Google's description of the messages of its compute API."""
    import googleapiclient

    folder = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    described: dict[str, Any] = json.loads((folder / "compute.v1.json").read_text())["schemas"]
    return described


def faults(value: Any, schema: dict[str, Any], known: dict[str, Any], where: str = "") -> list[str]:
    """What of a message is not as described: unknown fields, other types, unknown names."""
    schema = known[schema["$ref"]] if "$ref" in schema else schema
    kind = schema.get("type")
    if kind == "object":
        if not isinstance(value, dict):
            return [f"{where} is not an object"]
        fields: dict[str, Any] = schema.get("properties", {})
        others: Any = schema.get("additionalProperties")
        unknown = [f"{where}.{name} is unknown" for name in value if name not in fields and not others]
        inner = [(name, fields.get(name, others)) for name in value if name in fields or others]
        return unknown + [f for name, s in inner for f in faults(value[name], s, known, f"{where}.{name}")]
    if kind == "array":
        if not isinstance(value, list):
            return [f"{where} is not a list"]
        return [
            f for i, item in enumerate(value) for f in faults(item, schema["items"], known, f"{where}[{i}]")
        ]
    whole = schema.get("format") in ("int64", "uint64")  # Written as text or as a number.
    types = {"string": (str, int) if whole else str, "boolean": bool, "integer": int, "number": (int, float)}
    if kind in types and not isinstance(value, types[kind]):
        return [f"{where} is {value!r}, not a {kind}"]
    named = "enum" in schema and value not in schema["enum"]
    return [f"{where} is {value!r}, not one of {schema['enum']}"] if named else []


def test_an_instance_of_every_type_is_requested_as_google_describes_it(cloud: Cloud) -> None:
    from ray.autoscaler._private.gcp.config import bootstrap_gcp
    from ray.autoscaler._private.gcp.node_provider import GCPNodeProvider

    config = bootstrap_gcp(prepared(CLUSTERS / "gcp.yaml", filled))
    provider = GCPNodeProvider(config["provider"], config["cluster_name"])
    cloud.requests.clear()
    for name, node in node_configs(config).items():
        provider.create_node(node, tags(name, "head" if name == "head" else "worker"), 1)
    bodies = {
        body["labels"]["ray-user-node-type"]: body
        for request, body in cloud.requests
        if request.endswith("/instances")
    }
    assert bodies.keys() == config["available_node_types"].keys()
    known = schemas()
    for name, body in bodies.items():
        assert faults(body, known["Instance"], known, name) == []
        spot = body.get("scheduling", {}).get("provisioningModel") == "SPOT"
        assert spot == name.startswith("gpu-spot"), name
        assert not any("accessConfigs" in interface for interface in body["networkInterfaces"])
        disk, zone = body["disks"][0]["initializeParams"], config["provider"]["availability_zone"]
        assert disk["diskSizeGb"] >= 200 and disk["diskType"] == f"zones/{zone}/diskTypes/pd-balanced"
        (account,) = body["serviceAccounts"]
        assert account["email"].startswith(HEAD if name == "head" else "stillhouse-worker")


def test_the_check_of_messages_notices_mistakes() -> None:
    known = schemas()
    message = {"machineTyp": "n2", "disks": {"boot": True}, "scheduling": {"provisioningModel": "CHEAP"}}
    found = faults(message, known["Instance"], known, "node")
    assert found[0] == "node.machineTyp is unknown" and found[1] == "node.disks is not a list"
    assert found[2].startswith("node.scheduling.provisioningModel is 'CHEAP', not one of")
