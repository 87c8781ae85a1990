"""`ray up cluster.yaml` against a simulated AWS: Ray's own bootstrap, and an instance of every type."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launchers import ROOT, node_configs, prepared, tags  # type: ignore[import-not-found]

moto = pytest.importorskip("moto", reason="the extra `cluster-test` is not installed")
REGION = "us-west-2"


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """An account with a network, an image and the workers' profile; yields what fills in the file."""
    import boto3

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "simulated")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "simulated")
    monkeypatch.setattr("ray.autoscaler._private.aws.config.time.sleep", lambda _: None)
    with moto.mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
        ec2 = boto3.client("ec2", REGION)
        network = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnets = [
            ec2.create_subnet(VpcId=network, CidrBlock=f"10.0.{i}.0/24", AvailabilityZone=f"{REGION}{zone}")
            for i, zone in enumerate("abc")
        ]
        group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=network)["GroupId"]
        boto3.client("iam", REGION).create_instance_profile(InstanceProfileName="stillhouse-worker")
        yield {
            "ImageId": ec2.describe_images()["Images"][0]["ImageId"],
            "SubnetIds": [made["Subnet"]["SubnetId"] for made in subnets],
            "SecurityGroupIds": [group],
        }


def bootstrapped(cloud: dict[str, Any]) -> dict[str, Any]:
    """cluster.yaml, filled in and completed by Ray."""
    from ray.autoscaler._private.aws.config import bootstrap_aws

    def fill_in(config: dict[str, Any]) -> None:
        for kind in config["available_node_types"].values():
            assert set(cloud) <= set(kind["node_config"]), "what is to be filled in has its place"
            kind["node_config"].update(cloud)

    config: dict[str, Any] = bootstrap_aws(prepared(ROOT / "cluster.yaml", fill_in))
    return config


def test_an_instance_of_every_type_is_created(cloud: dict[str, Any]) -> None:
    import boto3
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    config = bootstrapped(cloud)
    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    for name, node in node_configs(config).items():
        provider.create_node(node, tags(name, "head" if name == config["head_node_type"] else "worker"), 1)
    made = {
        tag["Value"]: instance
        for reservation in boto3.client("ec2", REGION).describe_instances()["Reservations"]
        for instance in reservation["Instances"]
        for tag in instance["Tags"]
        if tag["Key"] == "ray-user-node-type"
    }
    assert made.keys() == config["available_node_types"].keys()
    for name, instance in made.items():
        node = config["available_node_types"][name]["node_config"]
        assert instance["InstanceType"] == node["InstanceType"]
        assert (instance.get("InstanceLifecycle") == "spot") == name.startswith("gpu-spot"), name
        assert instance["SubnetId"] in cloud["SubnetIds"]
        assert [group["GroupId"] for group in instance["SecurityGroups"]] == cloud["SecurityGroupIds"]
        assert not instance.get("PublicIpAddress")
        role = instance["IamInstanceProfile"]["Arn"].rpartition("/")[2]
        assert role == ("ray-autoscaler-v1" if name == "head" else "stillhouse-worker"), name


def test_what_rays_bootstrap_refuses_is_refused_here_too(cloud: dict[str, Any]) -> None:
    """The file once listed no network interfaces beside its subnets; only this step of `ray up` notices."""
    from ray.autoscaler._private.aws.config import bootstrap_aws

    def fill_in(config: dict[str, Any]) -> None:
        for kind in config["available_node_types"].values():
            kind["node_config"].update(cloud, NetworkInterfaces=[])

    with pytest.raises((ValueError, AssertionError)):
        bootstrap_aws(prepared(ROOT / "cluster.yaml", fill_in))
