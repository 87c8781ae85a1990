import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stillhouse.core.artifacts import Workspace, locked, write_json
from stillhouse.core.identity import canonical
from stillhouse.corpora.tokens import build_tokens
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.store_admin import collect, collectable, list_stores
from stillhouse.values.data import AllRows, Examples, Model, Store, TokenTable


@pytest.fixture
def tokens(workspace: Workspace, store: Store) -> TokenTable:
    build_stores(workspace, [store], local=True)
    assert isinstance(store.teacher, Model)
    table = TokenTable(store.texts, store.teacher, 16)
    build_tokens(workspace, table)
    return table


def grow_old(folder: Path) -> None:
    two_days_ago = time.time() - 2 * 86_400
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (two_days_ago, two_days_ago))


def test_finished_and_unfinished_stores_are_listed(
    workspace: Workspace, store: Store, tokens: TokenTable
) -> None:
    other = workspace.path(replace(store, max_length=16))
    other.mkdir()
    first, second = sorted(list_stores(workspace), key=lambda listed: not listed.finished)
    assert (first.label, first.fingerprint, first.rows, first.dim) == ("words", store.fingerprint, 44, 32)
    assert (first.dtype, first.path, first.finished) == ("float16", workspace.path(store), True)
    assert isinstance(store.teacher, Model) and first.teacher == store.teacher.name
    assert first.megabytes > 0
    assert (second.rows, second.finished, second.teacher) == (0, False, "")
    assert list_stores(Workspace(workspace.root / "nothing")) == []
    assert first.prompt == second.prompt == ""
    prompted = replace(store, prompt="query: ")
    build_stores(workspace, [prompted], local=True)
    assert [each.prompt for each in list_stores(workspace) if each.fingerprint == prompted.fingerprint] == [
        "query: "
    ]


def test_stores_not_named_by_a_plan_are_collectable(
    workspace: Workspace, store: Store, tokens: TokenTable
) -> None:
    found = collectable(workspace)
    assert [item.path for item in found] == [workspace.path(store), workspace.path(tokens)]
    assert workspace.finished(store) and workspace.finished(tokens)
    assert collect(found) == sum(item.bytes for item in found) > 10_000
    assert not workspace.path(store).exists() and not workspace.path(tokens).exists()
    assert collectable(workspace) == []


def test_stores_named_by_a_plan_are_kept(workspace: Workspace, store: Store, tokens: TokenTable) -> None:
    examples = Examples({"text": store.texts}, AllRows())
    plan = {"plan": {"examples": canonical(examples), "stores": {"text": canonical(store)}}}
    write_json(workspace.root / "stages" / "distil-0" / "plan.json", plan)
    assert collectable(workspace) == []


def test_a_fingerprint_in_a_sweep_is_a_reference(
    workspace: Workspace, store: Store, tokens: TokenTable
) -> None:
    write_json(workspace.root / "sweeps" / "s1" / "sweep.json", {"store": store.fingerprint})
    assert [item.path for item in collectable(workspace)] == [workspace.path(tokens)]


def test_old_unfinished_stores_are_collectable_unless_being_built(workspace: Workspace, store: Store) -> None:
    build_stores(workspace, [store], local=True)
    folder = workspace.path(store)
    (folder / "manifest.json").unlink()
    assert collectable(workspace) == []
    grow_old(folder)
    (item,) = collectable(workspace)
    assert item.path == folder and "unfinished" in item.reason
    with locked(folder.with_suffix(".lock")):
        assert collectable(workspace) == []
        assert collect([item]) == 0
    assert folder.exists()
    assert collect([item]) == item.bytes
    assert not folder.exists()
