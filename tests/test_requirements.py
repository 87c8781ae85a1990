"""What `make lock` makes of `constraints.txt`: the tested versions, with the checksum of every file."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH, REST, CPU, GPU = (
    ROOT / "requirements" / f"{name}.txt" for name in ("torch", "rest", "faiss-cpu", "faiss-gpu")
)


def locked(file: Path) -> dict[str, tuple[str, list[str]]]:
    """Read the version and the checksums of each package."""
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in re.split(r"\n(?=\w)", file.read_text()):
        line, *hashes = entry.split("\n")
        name, separator, rest = line.partition("==")
        if separator and not name.startswith("#"):
            sums = [text.split("sha256:")[1].rstrip(" \\") for text in hashes if "--hash=sha256:" in text]
            found[normal(name)] = (rest.split()[0], sums)
    return found


def normal(name: str) -> str:
    """The name of a package as indices write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~ ]", name)[0]).lower()


def test_versions_are_those_that_were_tested() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = {normal(line): line.split("==")[1] for line in lines if "==" in line}
    found = locked(TORCH) | locked(REST) | locked(CPU) | locked(GPU)
    assert len(found) > 180
    others = {name for name, (version, _) in found.items() if tested.get(name, version) != version}
    assert others == set(), "run `make lock` after a change of constraints.txt"
    assert len(found.keys() - tested.keys()) < 40, "what only other platforms need is not tested here"


def test_every_file_has_a_checksum_and_every_dependency_is_there() -> None:
    torch, rest, cpu, gpu = (locked(file) for file in (TORCH, REST, CPU, GPU))
    assert [*cpu, *gpu] == ["faiss-cpu", "faiss-gpu"], "never both: they hold the same files"
    for name, (_, sums) in (torch | rest | cpu | gpu).items():
        assert sums and all(re.fullmatch("[0-9a-f]{64}", each) for each in sums), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    needed = {normal(each) for each in (*project["dependencies"], *optional["cpu"], *optional["dev"])}
    assert needed - {"stillhouse", "torch"} <= (rest | cpu).keys() and "torch" in torch
    assert not rest.keys() & {"torch", "triton"}
