"""Every flag that a command takes is read by it: what is not read would be ignored without a word."""

import contextlib
import importlib
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.cli import main as main_module
from stillhouse.cli.arguments import FLAGS
from stillhouse.cli.main import COMMANDS, main, parser
from stillhouse.core.artifacts import Workspace

UNREAD = {
    "doctor": {
        "local",
        "address",
        "actors",
        "cpus_per_worker",
        "gpus_per_worker",
        "wait_for_nodes",
        "refresh",
    }
}
"""`doctor` takes the command line of `train` as it is."""
LINES: dict[str, list[list[str]]] = {
    "sweep": [["mse"]],
    "train": [["mse", "--variant="]],
    "doctor": [["mse", "--local"]],
    "plan": [["mse"], ["mse", "--for", "train"]],
    "embed": [[]],
    "mine": [["--output", "mined.jsonl"]],
    "evaluate": [["tiny"], ["tiny", "--suite", "cost"]],
    "compare": [["--experiment", "mse"]],
    "dashboard": [["mse"]],
    "export": [["mse", "out"], ["mse", "--format", "list"]],
    "verify": [[]],
    "store": [["gc"]],
    "presets": [["mse"]],
    "fields": [[]],
}
"""Command lines that come to each of a command's ends."""


class Ended(Exception):
    """All flags have been read: the work itself begins."""


class Watched(Namespace):
    """Parsed arguments that know which of them were read since the parser returned them."""

    def __getattribute__(self, name: str) -> Any:
        known = super().__getattribute__("__dict__")
        if name in known and "begun" in known:
            known.setdefault("_read", set()).add(name)
        return super().__getattribute__(name)


@contextlib.contextmanager
def no_session(resources: dict[str, Any], **_: Any) -> Iterator[tuple[Workspace, str]]:
    yield Workspace(resources["root"]), "cpu"


def end(*_: Any, **__: Any) -> Any:
    raise Ended


@pytest.fixture
def without_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let every command end where its work would begin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main_module, "_report_failure", lambda *_: None)
    for place in ("cli.run", "cli.doctor", "cli.plans"):
        monkeypatch.setattr(f"stillhouse.{place}.session_of", no_session)
    works = (
        *("sweeps.sweep.sweep", "sweeps.curve.train_at", "preflight.examination.examine"),
        *("cli.plans.plan_sweep", "cli.plans.plan_training"),
        *("experiments.preparation.prepare", "experiments.mined_pairs.mine", "reports.comparison.compare"),
        *(
            "cli.experiment_figures.measure_models",
            "cli.published_suites.record_test_use",
            "cli.published_suites._show",
        ),
        *(
            "cli.dashboard.dashboard_server",
            "sweeps.stage_export.export_stage",
            "sweeps.workspace_check.verify",
        ),
    )
    for work in works:  # All before one is replaced: others would import what ends, and keep it.
        importlib.import_module(f"stillhouse.{work.rpartition('.')[0]}")
    for work in works:
        monkeypatch.setattr(f"stillhouse.{work}", end)
    monkeypatch.setattr("stillhouse.training.models.stage_of", lambda name, workspace: tmp_path)
    monkeypatch.setattr("stillhouse.sweeps.stage_export.formats_of", lambda stage: {})
    monkeypatch.setattr("stillhouse.experiments.mined_pairs.check_mine", lambda *_: None)


def flags_of(command: str) -> set[str]:
    chosen = parser()._commands()[command]  # type: ignore[attr-defined]
    found = {action.dest for action in chosen._actions if action.option_strings}
    return found - {
        "help",
        *FLAGS,
        "verbose",
        "verify",
        "root",
    }


@each_row("command", LINES)
def test_every_flag_is_read(command: str, without_work: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Watched] = []

    def watched(**given: Any) -> Watched:
        seen.append(Watched(**given))
        return seen[-1]

    monkeypatch.setattr(main_module, "Namespace", watched)
    for line in LINES[command]:
        main([command, *line])
    read: set[str] = set()
    for options in seen:
        read |= vars(options).get("_read", set())
    assert flags_of(command) - read - UNREAD.get(command, set()) == set()
    assert not UNREAD.get(command, set()) & read, "an exception is for what is not read"


def test_every_command_is_watched() -> None:
    assert list(LINES) == [command.__name__.rpartition(".")[2] for command in COMMANDS]
