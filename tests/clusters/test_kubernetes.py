"""The manifests for Kubernetes, by its own schemas and, for what KubeRay passes on, by Ray's autoscaler.

KubeRay's own fields are compared with a list of those that version 1.5 has; the operator is not run.
"""

import copy
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from launchers import CLUSTERS, FILL_IN  # type: ignore[import-not-found]
from rows import each_row

from stillhouse.cli.main import parser

FOLDER = CLUSTERS / "kuberay"
CLUSTER = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "authOptions", "headGroupSpec"} | {
    "workerGroupSpecs",
    "headServiceAnnotations",
    "gcsFaultToleranceOptions",
    "suspend",
    "managedBy",
}
GROUP = {"rayStartParams", "template", "resources", "labels"}
WORKERS = GROUP | {"groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "idleTimeoutSeconds"}
AUTOSCALER = {"version", "idleTimeoutSeconds", "upscalingMode", "image", "resources", "env", "envFrom"}
JOB = {
    "entrypoint",
    "submissionMode",
    "backoffLimit",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
} | {
    "rayClusterSpec",
    "activeDeadlineSeconds",
    "runtimeEnvYAML",
    "submitterPodTemplate",
}


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text().replace(FILL_IN, "filled-in")))


def clusters() -> Iterator[tuple[str, dict[str, Any]]]:
    """The cluster of each file that has one."""
    (cluster,) = manifests("raycluster")
    yield cluster["metadata"]["name"], cluster["spec"]
    (job,) = manifests("rayjob")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob") and set(job["spec"]) <= JOB
    yield job["metadata"]["name"], job["spec"]["rayClusterSpec"]


def groups(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


@pytest.mark.parametrize(("name", "spec"), clusters())
def test_kubernetes_takes_every_pod(name: str, spec: dict[str, Any]) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="the extra `cluster-test` is not installed")
    for group in groups(spec):
        template = copy.deepcopy(group["template"])
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **template}
        schemas.validate(pod, schemas.latest_version(), strict=True)


@each_row("manifest", manifests("tracking"))
def test_kubernetes_takes_mlflow_and_postgres(manifest: dict[str, Any]) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="the extra `cluster-test` is not installed")
    schemas.validate(manifest, schemas.latest_version(), strict=True)


@pytest.mark.parametrize(("name", "spec"), clusters())
def test_rays_autoscaler_reads_the_cluster(name: str, spec: dict[str, Any]) -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    resource = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    kinds = _derive_autoscaling_config_from_ray_cr(resource)["available_node_types"]
    assert kinds["headgroup"]["resources"]["CPU"] == 0
    assert kinds["cpu"]["resources"] == {"CPU": 16, "memory": 32 << 30}
    for name in ("gpu-spot", "gpu-on-demand"):
        assert kinds[name]["resources"]["GPU"] == 1 and kinds[name]["min_workers"] == 0
        assert kinds[name]["max_workers"] > 0


@pytest.mark.parametrize(("name", "spec"), clusters())
def test_kuberays_fields_are_known_and_pods_fit_the_autoscaler(name: str, spec: dict[str, Any]) -> None:
    assert set(spec) <= CLUSTER and set(spec["autoscalerOptions"]) <= AUTOSCALER
    assert set(spec["headGroupSpec"]) <= GROUP
    assert spec["enableInTreeAutoscaling"] and spec["autoscalerOptions"]["version"] == "v2"
    assert spec["authOptions"] == {"mode": "token"}
    for group in spec["workerGroupSpecs"]:
        assert set(group) <= WORKERS, group["groupName"]
        gpu = group["groupName"].startswith("gpu")
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"].endswith(":cuda" if gpu else ":cpu")
    for group in groups(spec):
        assert group["template"]["spec"]["restartPolicy"] == "Never", "the autoscaler replaces nodes itself"
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_both_files_have_the_same_cluster_of_the_tested_ray() -> None:
    import ray

    (_, stays), (_, goes) = clusters()
    assert stays == goes and stays["rayVersion"] == ray.__version__


def test_what_the_pods_name_is_defined() -> None:
    made = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests("tracking")}
    text = "".join((FOLDER / f"{name}.yaml").read_text() for name in ("raycluster", "rayjob", "tracking"))
    for claim in re.findall(r"claimName: ([\w-]+)", text):
        assert ("PersistentVolumeClaim", claim) in made
    for host in re.findall(r"(?:http://|@)([\w-]+)[:/]", text):
        assert ("Service", host) in made, host


def test_only_heads_reach_mlflow_and_the_studies() -> None:
    services = {
        each["spec"]["selector"]["app"] for each in manifests("tracking") if each["kind"] == "Service"
    }
    closed = [each["spec"] for each in manifests("tracking") if each["kind"] == "NetworkPolicy"]
    assert {policy["podSelector"]["matchLabels"]["app"] for policy in closed} == services
    assert all(policy["policyTypes"] == ["Ingress"] and policy["ingress"][0]["from"] for policy in closed)


def test_the_job_is_a_command_that_the_sweep_takes() -> None:
    (job,) = manifests("rayjob")
    python, path, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert python == "python" and path == "/opt/stillhouse/jobs/sweep_ibkd.py"
    assert parser().parse_args(["sweep", "ibkd", *arguments]).concurrency == 8


def test_mlflow_takes_its_flags() -> None:
    from mlflow.cli import cli

    (server,) = (found for found in manifests("tracking") if found["kind"] == "Deployment")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    program, command, *flags = container["command"] + container["args"]
    assert program == "mlflow" and "--app-name=basic-auth" in flags
    chosen = cli.commands[command].make_context(command, flags).params
    (port,) = (listed["containerPort"] for listed in container["ports"])
    assert chosen["port"] == port and f"stillhouse-mlflow:{port}" in chosen["allowed_hosts"]
    assert chosen["artifacts_destination"].startswith(container["volumeMounts"][0]["mountPath"])
