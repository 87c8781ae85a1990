from collections.abc import Iterator
from pathlib import Path

import pytest
from local_ray import local_ray
from stand_ins import stage  # type: ignore[import-not-found]

from stillhouse.core.artifacts import Workspace
from stillhouse.corpora.tables import write_texts
from stillhouse.corpora.tokens import build_tokens
from stillhouse.teachers.weights import resolve_model
from stillhouse.training import token_job
from stillhouse.training.token_job import build_tokens_on_cluster
from stillhouse.values.data import AllRows, Examples, TextTable, TokenTable
from stillhouse.values.stage import Stage

ROWS = 160


def texts_of_uneven_shards(workspace: Workspace, label: str) -> TextTable:
    """The first shard is by far the longest, so that it is finished last."""
    first = ["returns the mean of all values in the array " * 400 + str(row) for row in range(16)]
    return write_texts(workspace, label, [*first, *map(str, range(16, ROWS))], rows_per_shard=16)


@pytest.fixture(scope="module")
def on_ray() -> Iterator[None]:
    with local_ray(2):
        yield


@pytest.fixture
def tables(workspace: Workspace, tiny_model: Path) -> list[TokenTable]:
    """The tokens of a table of ten shards, and of one of one shard."""
    model = resolve_model(str(tiny_model))
    small = write_texts(workspace, "small", ["one", "two"])
    large = texts_of_uneven_shards(workspace, "large")
    return [TokenTable(large, model, 16, "sort "), TokenTable(small, model, 16)]


@pytest.fixture
def plan(tables: list[TokenTable], monkeypatch: pytest.MonkeyPatch) -> Stage:
    part: Stage = stage(examples=Examples({"text": tables[0].texts}, AllRows()))
    monkeypatch.setattr(token_job, "token_tables", lambda given: tables if given == part else [])
    return part


def bytes_of(workspace: Workspace, table: TokenTable) -> dict[str, bytes]:
    folder = workspace.path(table)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".npy"}


def test_nothing_is_made_without_ray(workspace: Workspace, plan: Stage, tables: list[TokenTable]) -> None:
    build_tokens_on_cluster(plan, workspace, shards=1)
    assert not any(map(workspace.finished, tables))


@pytest.mark.ray
@pytest.mark.long
def test_all_nodes_make_the_bytes_that_one_process_makes(
    workspace: Workspace,
    plan: Stage,
    tables: list[TokenTable],
    on_ray: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build_tokens_on_cluster(plan, workspace, shards=10)
    large, small = tables
    assert workspace.finished(large)
    assert not workspace.finished(small), "which is left to the stage that reads it"
    assert "tokenising large: 160 of 160 texts" in capsys.readouterr().err
    alone = Workspace(tmp_path / "alone")
    texts_of_uneven_shards(alone, "large")
    build_tokens(alone, large)
    assert bytes_of(workspace, large) == bytes_of(alone, large)


def test_a_smaller_table_is_left_to_its_stage(
    workspace: Workspace, plan: Stage, tables: list[TokenTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_job, "ray_runs", lambda: True)
    build_tokens_on_cluster(plan, workspace, shards=11)
    assert not any(map(workspace.finished, tables))
