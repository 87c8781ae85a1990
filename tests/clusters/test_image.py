"""The stages of clusters/Dockerfile fit the project: files, extras, version of Python. None is built here."""

import re
import tomllib

from launchers import CLUSTERS, ROOT  # type: ignore[import-not-found]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXT = (CLUSTERS / "Dockerfile").read_text()


def stages() -> dict[str, str]:
    """The commands of each stage, by its name."""
    parts = re.split(r"^FROM \S+ AS (\w+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def extras(stage: str) -> set[str]:
    (listed,) = re.findall(r"--editable '\.\[([\w,-]+)\]'", stages()[stage])
    return set(listed.split(","))


def test_stages_install_extras_that_there_are_and_one_faiss_each() -> None:
    assert list(stages()) == ["base", "cpu", "cuda"]
    for stage, faiss in (("cpu", "cpu"), ("cuda", "gpu")):
        assert extras(stage) <= set(PROJECT["optional-dependencies"])
        assert extras(stage) & {"cpu", "gpu"} == {faiss}
        assert re.search(r"pip install --constraint constraints.txt .*torch$", stages()[stage], re.MULTILINE)


def test_gpus_reach_the_containers_of_gpu_nodes() -> None:
    devices = "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    assert [devices in stages()[stage] for stage in ("cpu", "cuda")] == [False, True]


def test_what_is_copied_exists_and_is_what_the_package_is_built_from() -> None:
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", TEXT, re.MULTILINE) for name in line.split()}
    assert all((ROOT / name).exists() for name in copied)
    assert {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "platform", "jobs"} <= copied


def test_the_version_of_python_is_supported() -> None:
    (version,) = re.findall(r"^ARG PYTHON=3\.(\d+)$", TEXT, re.MULTILINE)
    low, high = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert int(low) <= int(version) < int(high)
