"""A sweep's study in optuna-dashboard, served on loopback."""

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest

from stillhouse.cli.dashboard import dashboard_server
from stillhouse.cli.main import main
from stillhouse.core.errors import BadInput
from stillhouse.search.studies import copy_attributes, open_study


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with one sweep of two trials, ``small``."""
    folder = tmp_path / "sweeps" / "small"
    folder.mkdir(parents=True)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage, number = open_study(folder / "study.db", ["maximize"])
    copy_attributes({"search": {"space": "", "objectives": [["mrr@10", "max"]]}}, storage, number)
    study = optuna.load_study(study_name=None, storage=storage)
    rate = {"rate": optuna.distributions.FloatDistribution(1e-5, 1e-3, log=True)}
    for value in (1e-4, 3e-4):
        study.add_trial(optuna.trial.create_trial(params={"rate": value}, distributions=rate, value=value))
    return tmp_path


@contextmanager
def serving(root: Path) -> Iterator[str]:
    server = dashboard_server(root, "small", 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as reply:
        assert reply.status == 200
        return reply.read()


def test_the_study_opens_and_cannot_be_changed(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(root) as address:
        assert b"Optuna Dashboard" in fetch(f"{address}/dashboard")
        (summary,) = json.loads(fetch(f"{address}/api/studies"))["study_summaries"]
        assert summary["study_name"] == "small"
        shown = json.loads(fetch(f"{address}/api/studies/{summary['study_id']}"))
        assert shown["objective_names"] == ["mrr@10"]
        trials = shown["trials"]
        assert [trial["values"] for trial in trials] == [[1e-4], [3e-4]]
        assert "GET" not in capfd.readouterr().err
        removal = urllib.request.Request(f"{address}/api/studies/{summary['study_id']}", method="DELETE")
        with pytest.raises(urllib.error.HTTPError, match="500"):
            urllib.request.urlopen(removal, timeout=10)
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{root / 'sweeps/small/study.db'}")
    assert len(study.trials) == 2


def test_a_taken_port_is_named(root: Path) -> None:
    with serving(root) as address, pytest.raises(BadInput, match="cannot listen on 127"):
        dashboard_server(root, "small", int(address.rpartition(":")[2]))


@pytest.mark.parametrize(
    ("sweep", "message"),
    [("smal", "unknown sweep `smal`"), ("other", "Known: small.")],
)
def test_an_unknown_sweep_names_the_near_ones(
    sweep: str, message: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard", sweep, "--root", str(root)]) == 2
    line = capsys.readouterr().err
    assert message in line and "small" in line and len(line.splitlines()) == 1


def test_a_missing_extra_is_named(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    assert main(["dashboard", "small", "--root", str(root)]) == 2
    line = capsys.readouterr().err
    assert "Install the extra `dashboard`" in line and len(line.splitlines()) == 1


def test_an_empty_workspace_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "small", "--root", str(tmp_path)]) == 2
    assert "Run a sweep first, or give --root." in capsys.readouterr().err
