"""The table of deliberate mistakes stays applicable, and the script tells the killed from the surviving."""

import subprocess
from pathlib import Path

import pytest
from mutant import REPOSITORY, Mutant  # type: ignore[import-not-found]
from mutant_table import MUTANTS  # type: ignore[import-not-found]
from run_mutants import run  # type: ignore[import-not-found]


def test_every_mistake_can_be_made_and_its_tests_exist() -> None:
    for mutant in MUTANTS:
        mutant.applied(REPOSITORY)
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert f"def {name}" in (REPOSITORY / file).read_text(), (mutant.name, test)


def test_they_are_few_and_each_is_there_once() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) <= 80


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a sum and a test of it."""
    (tmp_path / "platform").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "platform" / "sums.py").write_text(
        "def add(a, b):\n    return a + b\n\n\ndef halve(a):\n    return a / 2\n"
    )
    (tmp_path / "tests" / "test_sums.py").write_text(
        "import time\nfrom sums import add\n\n\ndef test_add():\n    for _ in range(200):\n"
        "        if add(2, 2) < 0:\n            time.sleep(1)\n    assert add(2, 3) == 5\n"
    )
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def mistake(old: str, new: str, reason: str = "wrong") -> Mutant:
    return Mutant("platform/sums.py", old, new, reason, ("tests/test_sums.py",))


@pytest.mark.long
def test_what_a_test_notices_is_killed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([mistake("a + b", "a - b")], repository, workers=1) == []
    assert "by tests/test_sums.py::test_add" in capsys.readouterr().out
    assert (repository / "platform" / "sums.py").read_text().count("a + b") == 1, "only the copy changes"


@pytest.mark.long
def test_what_no_test_notices_survives(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mutants = [
        mistake("a + b", "a - b"),
        mistake("a / 2", "a / 3", "a third"),
        mistake("a + b", "b + a", "the same"),
    ]
    assert run(mutants, repository, workers=2) == mutants[1:]
    output = capsys.readouterr().out
    assert "3 mistakes, 2 of them not killed" in output
    assert (
        "not killed: platform/sums.py: a third" in output
        and "not killed: platform/sums.py: the same" in output
    )


@pytest.mark.long
def test_what_cannot_be_tested_is_not_killed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mutants = [mistake("def add", "def sub", "no such name"), mistake("a + b", "-1", "endless")]
    assert run(mutants, repository, workers=1, limit=12, check=False) == mutants
    output = capsys.readouterr().out
    assert "broken" in output and "too slow" in output


def test_a_table_that_has_rotted_and_tests_that_fail_anyway_are_refused(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for old, new in (("a * b", "a - b"), ("return", "yield"), ("a + b", "a +"), ("a + b", "a + b")):
        with pytest.raises(ValueError, match=r"must occur once|stay readable"):
            run([mistake(old, new)], repository)
    (repository / "tests" / "test_sums.py").write_text("def test_nothing():\n    assert False\n")
    assert run([mistake("a + b", "a - b")], repository, workers=1) is None
    assert "without any mistake" in capsys.readouterr().out
