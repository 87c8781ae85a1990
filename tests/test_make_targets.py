"""What runs the tests: the Makefile's targets, CI, the release's page, and what CONTRIBUTING says of them."""

import importlib.util
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from rows import each_row

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
RUNS_TESTS = re.compile(r"-m pytest |python (?:tests|faults|fuzz)/")


def recipes() -> dict[str, str]:
    """Return the recipe of each of the Makefile's targets."""
    text = (ROOT / "Makefile").read_text()
    return {
        target: recipe for target, recipe in re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)*)", text, re.MULTILINE)
    }


def rows() -> dict[str, list[str]]:
    """Return the cells after the first of each line of the release's page."""
    text = (ROOT / "docs" / "release.md").read_text()
    found = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", text, re.MULTILINE)
    return {suite: [cell.strip() for cell in cells.split("|")] for suite, cells in found}


def dry_run(words: Sequence[str]) -> list[list[str]]:
    """Return the commands that make would run, as words; also where make runs these tests."""
    ran = subprocess.run(
        ["make", "--no-print-directory", "-n", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
    )
    assert ran.returncode == 0, ran.stderr
    return [shlex.split(line) for line in ran.stdout.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_suite_is_in_ci_or_on_the_page_of_releases() -> None:
    suites = {target for target, recipe in recipes().items() if RUNS_TESTS.search(recipe)}
    assert {"test", "test-long", "faults", "fuzz", "mutants", "cluster-test"} <= suites
    script = (ROOT / ".ci" / "run").read_text()
    in_ci = set(re.findall(r"^make ([a-z-]+)", script, re.MULTILINE))
    assert suites - in_ci == rows().keys()
    (command,) = [line for line in dry_run(["release"]) if ".ci/release.py" in line]
    assert set(command[command.index(".ci/release.py") + 1 :]) == rows().keys()
    assert not re.search(r"^\s*(if|case|for|while)\b|\|\|", script, re.MULTILINE), "CI leaves nothing out"


def test_the_page_of_releases_is_of_this_version(release: ModuleType) -> None:
    for suite, (version, *results) in rows().items():
        ran = version.startswith(VERSION) and all(results)
        assert ran or (version == release.NOT_RUN and not any(results)), suite


def test_a_result_is_written_into_its_line(release: ModuleType) -> None:
    page = (ROOT / "docs" / "release.md").read_text()
    counts = release.counted("== 1 failed, 1,502 passed, 3 skipped, 2 errors in 12.3s ==")
    assert counts == {"passed": 1502, "failed": 3, "skipped": 3}
    written = release.with_result(page, "fuzz", counts, 61.4)
    before, after = page.splitlines(), written.splitlines()
    (changed,) = [line for line in after if line not in before]
    assert changed.startswith(f"| `fuzz` | {VERSION} | ") and changed.endswith(" | 1,502 | 3 | 3 | 61 |")
    assert len(after) == len(before)


def examples() -> list[list[str]]:
    """Return the words after `make` in CONTRIBUTING, and those with the variables of its comments."""
    found = []
    for line in (ROOT / "CONTRIBUTING.md").read_text().split("```")[1].strip().splitlines():
        command, _, comment = line.partition("#")
        found += [shlex.split(command)[1:]]
        found += [
            [*found[-1], *shlex.split(each)] for each in re.findall(r'\b[A-Z]+=(?:"[^"]+"|[^\s;,]+)', comment)
        ]
        found += [[name] for name in re.findall(r"make ([a-z-]+)", comment)]
    return found


@each_row("words", examples())
def test_what_contributing_says_of_make_is_what_it_runs(words: list[str]) -> None:
    """Paths that are given are all that pytest gets, and arguments reach the last command."""
    command = dry_run(words)[-1]
    for given in (word.partition("=")[2] for word in words[1:]):
        assert set(shlex.split(given)) <= set(command)
        if "pytest" in command and (ROOT / given).exists():
            assert [word for word in command if word.startswith("tests")] == [given]
