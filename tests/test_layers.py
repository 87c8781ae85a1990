"""Imports point down only, ray stays at the edges, and `platform/` never becomes a package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PLATFORM = Path(__file__).resolve().parent.parent / "platform"
PACKAGE = PLATFORM / "stillhouse"
LEVELS = [
    {"core"},
    {"plan", "tracking", "cluster"},
    {"corpora", "losses", "students"},
    {"teachers", "evaluation", "objectives"},
    {"examples"},
    {"training"},
    {"experiments"},
    {"recipes"},
    {"methods"},
    {"search"},
    {"reports"},
    {"sweeps"},
    {"cli", "api"},
]
RAY_AT = (
    "cluster/",
    "corpora/reading/corpus",
    "evaluation/retrieval",
    "evaluation/search/sharded",
    "experiments/kinds/pairs",
    "search/",
    "sweeps/",
    "teachers/embedding",
    "training/walk",
    "training/worker",
)
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def level(part: str) -> int:
    return next(i for i, names in enumerate(LEVELS) if part in names)


def imported(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for module in imported(path):
        parts = module.split(".")
        if parts[0] != "stillhouse" or len(parts) < 2:
            continue
        assert level(parts[1]) <= level(own), f"{own} imports {module}, which stands above it"
    if own == "training":
        assert not any(module.startswith("stillhouse.methods") for module in imported(path))
    if own == "methods":
        assert not any(module.startswith("stillhouse.training") for module in imported(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_ray_stays_at_the_edges(path: Path) -> None:
    name = path.relative_to(PACKAGE).with_suffix("").as_posix()
    if not name.startswith(RAY_AT):
        assert not any(module.split(".")[0] == "ray" for module in imported(path))


def test_platform_is_not_a_package() -> None:
    assert not (PLATFORM / "__init__.py").exists()
