from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.types import Encoder, FloatArray
from stillhouse.evaluation import suites
from stillhouse.evaluation.retrieval import LocalSearch, Search
from stillhouse.evaluation.suites import run_suite
from stillhouse.values.stage import DevSuite, TestSuite


class Length:
    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[len(text)] for text in texts], np.float32)


class Counts:
    """An evaluator that returns one figure and records how often it was built."""

    built: ClassVar[list[tuple[str, Path, Search | None]]] = []

    def __init__(
        self, workspace: Workspace, name: str, split: str = "dev", search: Search | None = None
    ) -> None:
        self.name, self.split = name, split
        self.built.append((name, workspace.root, search))

    def __call__(self, model: Encoder) -> dict[str, float]:
        return {f"{self.name}_length": float(model.encode(["four"])[0, 0])}


def plain(name: str) -> Counts:
    """Return an evaluator that needs no workspace."""
    return Counts(Workspace(Path()), name)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    suites._built.clear()
    Counts.built.clear()
    yield
    suites._built.clear()


def dev(*names: str, select: str = "a_length") -> DevSuite:
    return DevSuite(tuple(spec(Counts, name=name) for name in names), select=select)


def test_figures_are_merged(workspace: Workspace) -> None:
    suite = DevSuite((spec(Counts, name="a"), spec(plain, name="b")), select="b_length")
    assert run_suite(suite, Length(), workspace) == {"a_length": 4.0, "b_length": 4.0}


def test_evaluators_are_built_once(workspace: Workspace, tmp_path: Path) -> None:
    first, second = LocalSearch(), LocalSearch()
    for search in (first, first, second):
        run_suite(dev("a"), Length(), workspace, search)
    assert [built[2] for built in Counts.built] == [first, second]
    run_suite(dev("a"), Length(), Workspace(tmp_path / "another"), second)
    assert len(Counts.built) == 3
    for name in map(str, range(20)):
        run_suite(dev(name, select=f"{name}_length"), Length(), workspace)
    assert len(suites._built) == suites.BUILT_AT_MOST


def test_two_figures_with_the_same_name_are_refused(workspace: Workspace) -> None:
    suite = DevSuite((spec(Counts, name="a"), spec(Counts, name="a", split="dev")), select="a_length")
    with pytest.raises(BadInput, match=r"a name of its own.*a_length.*another `name`"):
        run_suite(suite, Length(), workspace)


def test_the_figure_to_select_by_must_be_returned(workspace: Workspace) -> None:
    with pytest.raises(BadInput, match=r"`a_lenght` is not among its 2 figures. Did you mean a_length"):
        run_suite(dev("a", "b", select="a_lenght"), Length(), workspace)


def test_test_sets_belong_to_test_suites(workspace: Workspace) -> None:
    locked = (spec(Counts, name="a", split="test"),)
    assert run_suite(TestSuite(locked), Length(), workspace) == {"a_length": 4.0}
    with pytest.raises(BadInput, match="a dev suite may only hold dev sets"):
        run_suite(DevSuite(locked, select="a_length"), Length(), workspace)
