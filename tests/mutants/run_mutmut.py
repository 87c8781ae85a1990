"""Make the small mistakes that mutmut knows in arithmetic, and count those that the tests notice."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mutant import copied  # type: ignore[import-not-found]

ARITHMETIC = {
    "losses/*.py": "tests/losses",
    "objectives/*.py": "tests/objectives tests/methods/test_golden.py tests/methods/test_golden_stages.py",
    "methods/*.py": "tests/methods",
    "evaluation/metrics.py": "tests/evaluation/test_metrics.py",
    "training/sampler.py": "tests/training/test_sampler.py",
    "core/identity.py": "tests/core/test_identity.py",
}
"""The files that are changed, from the package, and the tests that must notice."""


def run(repository: Path, only: str, workers: int) -> tuple[int, int]:
    """Run mutmut in a copy of a repository, and print what survived.

    Args:
        repository: The root that is copied.
        only: A part of the names of the files that are changed.
        workers: Processes at once.

    Returns:
        How many changes were killed, and how many were not.
    """
    package = repository / "platform" / "stillhouse"
    tests: set[str] = set()
    chosen = []
    for pattern, noticing in ARITHMETIC.items():
        found = [path.relative_to(package).as_posix() for path in sorted(package.glob(pattern))]
        changed = [f"src/stillhouse/{path}" for path in found if only in path and "__init__" not in path]
        tests |= set(noticing.split()) if changed else set()
        chosen += changed
    if not chosen:
        return 0, 0
    print(f"\nmutmut: {', '.join(chosen)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutmut-") as folder:
        copy = copied(repository, Path(folder) / "copy")
        # mutmut takes a module's name from its path, below `src` alone.
        (copy / "platform").rename(copy / "src")
        (copy / "platform").symlink_to("src")
        settings = (
            (copy / "pyproject.toml").read_text().replace('pythonpath = ["platform"]', 'pythonpath = ["src"]')
        )
        (copy / "pyproject.toml").write_text(f"{settings}\n{_settings(chosen, sorted(tests))}")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
        for words in (["run", "--max-children", str(workers)], ["results"], ["export-cicd-stats"]):
            ran = subprocess.run(
                [sys.executable, "-m", "mutmut", *words],
                cwd=copy,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            if words[0] == "results" or ran.returncode:
                print("\n".join(line.rpartition("\r")[2] for line in ran.stdout.splitlines()), flush=True)
            ran.check_returncode()
        counts = json.loads((copy / "mutants" / "mutmut-cicd-stats.json").read_text())
    killed = counts["killed"] + counts["timeout"] + counts["segfault"]
    return killed, counts["total"] - killed


def _settings(files: list[str], tests: list[str]) -> str:
    settings = {
        "source_paths": ["src"],
        "only_mutate": files,
        "pytest_add_cli_args": ["-m", "not long", "-p", "no:xdist"],
        "pytest_add_cli_args_test_selection": tests,
        "also_copy": ["search_spaces", "jobs", "docs", "platform"],
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join(["[tool.mutmut]", "use_git_change_detection = false", *lines, ""])
