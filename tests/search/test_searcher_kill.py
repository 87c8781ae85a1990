import functools
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import RDBStorage
from rows import each_row
from studies import drive, finish, searcher, sequence  # type: ignore[import-not-found]

from stillhouse.search.searcher import StudySearcher

pytestmark = pytest.mark.usefixtures("no_backups")

Undisturbed = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Return a function from a sampler to the trials of a search with it that nothing disturbed."""

    @functools.cache
    def driven(sampler: str) -> list[tuple[Any, ...]]:
        search = searcher(tmp_path_factory.mktemp(sampler), sampler=sampler)
        drive(search)
        return list(sequence(search))

    return driven


def _kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _drive_and_die(folder: Path, where: str, turn: int, sampler: str) -> None:
    """Run `drive`, killed at point ``where`` of trial number ``turn``."""
    search: StudySearcher = searcher(folder, sampler=sampler)
    original = RDBStorage._set_trial_param_without_commit
    state = {"parameters": 0}

    def in_the_middle(self: Any, *args: Any, **named: Any) -> Any:
        state["parameters"] += 1
        if state["parameters"] == 3 * turn + 2:
            _kill_me()
        return original(self, *args, **named)

    if where == "in ask":
        RDBStorage._set_trial_param_without_commit = in_the_middle
    suggest, complete, listen = search.suggest, search.on_trial_complete, search.on_trial_result

    def dying_suggest(trial_id: str) -> dict[str, Any] | str | None:
        config = suggest(trial_id)
        if where == "after ask" and isinstance(config, dict) and config["trial"] == turn:
            _kill_me()
        return config

    def dying_listen(trial_id: str, result: dict[str, Any]) -> None:
        listen(trial_id, result)
        if where == "after report" and trial_id == f"tune{turn}":
            _kill_me()

    def dying_complete(trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if where == "before tell" and trial_id == f"tune{turn}":
            _kill_me()
        complete(trial_id, result, error)
        if where == "after tell" and trial_id == f"tune{turn}":
            _kill_me()

    search.suggest, search.on_trial_complete = dying_suggest, dying_complete  # type: ignore[method-assign]
    search.on_trial_result = dying_listen  # type: ignore[method-assign]
    drive(search)


@each_row(
    ("where", "sampler"),
    [
        ("in ask", "tpe"),
        ("after ask", "tpe"),
        ("after report", "tpe"),
        ("before tell", "tpe"),
        ("after tell", "tpe"),
        ("in ask", "qmc"),
    ],
)
def test_a_killed_search_resumes_like_an_undisturbed_one(
    tmp_path: Path, undisturbed: Undisturbed, where: str, sampler: str
) -> None:
    turn = 6
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=_drive_and_die, args=(tmp_path / "killed", where, turn, sampler))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    resumed = searcher(tmp_path / "killed", sampler=sampler)
    states = [record.state for record in resumed.records()]
    assert len(states) == (turn if where == "in ask" else turn + 1)
    assert (states[-1] == "RUNNING") == (where in ("after ask", "after report", "before tell"))
    drive(resumed)
    assert sequence(resumed) == undisturbed(sampler)


def test_running_trials_come_back_in_order_before_new_ones(tmp_path: Path) -> None:
    search = searcher(tmp_path)
    configs = [search.suggest(f"t{turn}") for turn in range(4)]
    finish(search, "t1")
    resumed = searcher(tmp_path)
    again = [resumed.suggest(f"u{turn}") for turn in range(4)]
    assert again[:3] == [configs[0], configs[2], configs[3]]
    assert isinstance(again[3], dict) and again[3]["trial"] == 4
