"""Imports point down only, ray stays at the edges, and `platform/` never becomes a package."""

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PLATFORM = Path(__file__).resolve().parent.parent / "platform"
PACKAGE = PLATFORM / "stillhouse"
LEVELS = [
    {"core"},
    {"values", "tracking", "cluster"},
    {"corpora", "losses", "students"},
    {"teachers", "evaluation", "objectives"},
    {"training"},
    {"experiments"},
    {"methods"},
    {"preflight", "search"},
    {"reports"},
    {"sweeps"},
    {"cli", "api"},
]
RAY_AT = (
    "cluster/",
    "corpora/reading/corpus",
    "evaluation/retrieval",
    "evaluation/search/sharded",
    "training/inputs",
    "search/",
    "sweeps/",
    "teachers/embedding",
    "training/token_job",
    "training/walk",
    "training/worker",
)
STARTS = """
import contextlib, io, sys
import stillhouse
from stillhouse.cli.main import main
for arguments in (["--help"], ["sweep", "--help"]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(arguments)
for name, module in stillhouse._MODULES.items():
    module in ("api", "sweeps.results") or getattr(stillhouse, name)
heavy = {"torch", "ray", "transformers", "mlflow", "optuna", "sklearn"} & set(sys.modules)
assert not heavy, f"loaded before a command begins: {heavy}"
print(*(module for module in sys.modules if module.partition(".")[0] == "stillhouse"))
"""
LATE = {
    "api": "a call loads Ray and Optuna only if it sweeps, plans or trains variants side by side",
    "sweeps/results": "an export loads Optuna, a curve matplotlib, which training needs not",
    "sweeps/sweep": "a sweep that is refused answers before Ray Tune, Optuna and MLflow load",
    "search/published_sweep": "Optuna loads before a refusal only where studies are kept in a database",
    "training/worker": "how ranks meet under Ray Train needs Ray; plain processes train without it",
    "tracking/mlflow_tracker": "MLflow reads its environment variables when it is imported",
}
"""Other modules that import within functions, and why."""
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def level(part: str) -> int:
    return next(i for i, names in enumerate(LEVELS) if part in names)


@functools.cache
def imported(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


def wrong_imports(path: Path) -> Iterator[str]:
    """Yield the rooms above its own that a file imports, and those that its room must not know."""
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for module in imported(path):
        parts = module.split(".")
        if parts[0] == "stillhouse" and len(parts) > 1:
            if level(parts[1]) > level(own) or {own, parts[1]} == {"training", "methods"}:
                yield module


def test_imports_point_down() -> None:
    assert not {path: wrong for path in FILES if (wrong := list(wrong_imports(path)))}


def test_ray_stays_at_the_edges() -> None:
    inner = [path for path in FILES if not path.relative_to(PACKAGE).as_posix().startswith(RAY_AT)]
    assert len(inner) > 200
    assert not [path for path in inner if any(module.split(".")[0] == "ray" for module in imported(path))]


def test_few_rooms_know_kinds_of_data() -> None:
    kinds = "stillhouse.experiments.kinds."
    asking = {
        path.relative_to(PACKAGE).with_suffix("").parts[0]
        for path in FILES
        if any(module.startswith(kinds) for module in imported(path))
    }
    assert asking == {"experiments", "methods", "preflight", "sweeps", "cli", "api"}


def late_imports(path: Path) -> set[str]:
    """Modules of the package that the functions of a file import."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    nodes = [node for function in functions for node in ast.walk(function)]
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name for name in (*plain, *named) if name.partition(".")[0] == "stillhouse"}


def test_functions_import_modules_only_where_starting_fast_needs_it() -> None:
    env = {**os.environ, "PYTHONPATH": str(PLATFORM)}
    ran = subprocess.run([sys.executable, "-c", STARTS], env=env, capture_output=True, text=True, check=True)
    start = {name.removeprefix("stillhouse.").replace(".", "/") for name in ran.stdout.split()}
    assert {"cli/sweep", "experiments/kinds/pairs"} <= start and not {"api", "methods"} & start
    late = {
        path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__"): names
        for path in FILES
        if (names := late_imports(path))
    }
    wrong = {module: names for module, names in late.items() if module not in start | set(LATE)}
    assert not wrong, f"import at the top of the file: {wrong}"
    assert set(LATE) <= set(late) - start, "an exception that is not needed"
    for module in set(late) & start:
        light = {name for name in late[module] if name.removeprefix("stillhouse.").replace(".", "/") in start}
        assert not light, f"{module} imports {light} within a function, although they are loaded anyway"


def test_platform_is_not_a_package() -> None:
    assert not (PLATFORM / "__init__.py").exists()


ROOMS_OF_IDENTITY = ("values", "students", "objectives", "losses", "evaluation", "experiments", "corpora")


def test_fingerprints_name_a_class_that_no_other_module_has() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] in ROOMS_OF_IDENTITY:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert len(homes) > 200
    assert not {name: files for name, files in homes.items() if len(files) > 1}


OF_OTHERS = ("corpora", "students", "teachers", "preflight", "core/model_folder.py")
"""Rooms and a file that read other formats, such as ``config.json``; ``modules.json`` is one too."""
FILE_NAME = re.compile(r"[a-z][a-z._]*\.(json|jsonl|yaml|db)")


def file_names(tree: ast.Module) -> set[str]:
    """The file names that a module declares as constants, or writes after a slash."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    named = [getattr(each.value, "elts", []) for each in assigned if isinstance(each.targets[0], ast.Tuple)]
    constants = [each.value for each in assigned] + [part for parts in named for part in parts]
    joined = [node.right for node in ast.walk(tree) if isinstance(node, ast.BinOp)]
    values = [getattr(each, "value", None) for each in (*constants, *joined)]
    return {each for each in values if isinstance(each, str) and FILE_NAME.fullmatch(each)} - {"modules.json"}


def test_each_note_and_marker_has_a_file_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        if not path.relative_to(PACKAGE).as_posix().startswith(OF_OTHERS):
            for name in file_names(ast.parse(path.read_text())):
                homes.setdefault(name, []).append(path.relative_to(PACKAGE).as_posix())
    assert {"plan.json", "sweep.json", "seconds.json", "manifest.json"} <= set(homes)
    assert not {name: files for name, files in homes.items() if len(files) > 1}
