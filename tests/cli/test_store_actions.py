"""The store commands: listing, verification and garbage collection."""

import json
import os
from pathlib import Path

import pytest

from stillhouse.cli import store as stores
from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared
from stillhouse.plan.data import Store
from stillhouse.teachers.store_admin import DAY_SECONDS


def shards(workspace: Workspace, store: Store) -> list[Path]:
    return sorted(workspace.path(store).glob("part-*.arrow"))


def test_ls_lists_every_store(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    found = stores.show(workspace)
    output = capsys.readouterr().out.splitlines()
    assert len(found) == len(output) == 3
    ours = next(
        entry for entry in found if entry["fingerprint"] == prepared.setting[Sentences].store.fingerprint
    )
    assert (ours["rows"], ours["dim"], ours["finished"]) == (prepared.setting[Sentences].rows, 32, True)
    assert ours["quarantined"] == 0
    assert any(ours["fingerprint"] in line and "32 x float16" in line for line in output)


def test_verify_reports_damage_by_exit_code(
    workspace: Workspace, prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    command = ["store", "verify", "--root", str(workspace.root), "--json", str(report)]
    assert main(command) == 0
    assert [entry["problems"] for entry in json.loads(report.read_text())] == [[], [], []]
    path = shards(workspace, prepared.setting[Sentences].store)[0]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert main(command) == 1
    problems = [entry["problems"] for entry in json.loads(report.read_text()) if entry["problems"]]
    assert len(problems) == 1 and "part-00000.arrow was altered" in problems[0][0]
    output = capsys.readouterr().out
    assert "DAMAGED" in output and problems[0][0] in output


def test_an_unfinished_store_is_not_damage(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace.path(prepared.setting[Sentences].store) / "manifest.json").unlink()
    assert all(entry["problems"] == [] for entry in stores.verify(workspace))
    assert "unfinished" in capsys.readouterr().out


def test_gc_deletes_only_on_request(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace.path(prepared.setting[Sentences].store)
    (folder / "manifest.json").unlink()
    for path in (folder, *folder.iterdir()):
        os.utime(path, (1, 1))
    assert folder.stat().st_mtime < DAY_SECONDS
    command = ["store", "gc", "--root", str(workspace.root)]
    assert main(command) == 0
    assert "would be freed: add --yes" in capsys.readouterr().out and folder.exists()
    (found,) = [entry for entry in stores.collect(workspace, really=True) if entry["path"] == str(folder)]
    assert found["deleted"] and not folder.exists()
    assert "unfinished" in found["reason"]
