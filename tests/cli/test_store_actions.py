"""The store commands: listing, verification and garbage collection."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from stillhouse.cli import store as stores
from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import Hindered
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.store import open_store
from stillhouse.teachers.store_admin import DAY_SECONDS
from stillhouse.values.data import Store


def shards(workspace: Workspace, store: Store) -> list[Path]:
    return sorted(workspace.path(store).glob("part-*.arrow"))


def test_ls_lists_every_store(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    found = stores.listed(workspace)
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
    path = shards(workspace, prepared.setting[Sentences].only_store)[0]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert main(command) == 1
    problems = [entry["problems"] for entry in json.loads(report.read_text()) if entry["problems"]]
    assert len(problems) == 1 and "part-00000.arrow was altered" in problems[0][0]
    output = capsys.readouterr().out
    assert "DAMAGED" in output and problems[0][0] in output


def test_an_unfinished_store_is_not_damage(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace.path(prepared.setting[Sentences].only_store) / "manifest.json").unlink()
    assert all(entry["problems"] == [] for entry in stores.verify(workspace))
    assert "unfinished" in capsys.readouterr().out


def test_gc_deletes_only_on_request(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace.path(prepared.setting[Sentences].only_store)
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


@pytest.mark.parametrize("content", ["{", "[]", "", '{"rows": 3}', '{"rows": 1, "teacher": 3}'])
def test_one_broken_manifest_does_not_hide_the_other_stores(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    folder = workspace.path(prepared.setting[Sentences].only_store)
    (folder / "manifest.json").write_text(content)
    flags = ["--root", str(workspace.root)]
    assert main(["store", "ls", *flags]) == 0
    assert main(["store", "verify", *flags]) == 1
    output = capsys.readouterr().out
    assert output.count("intact") == 2 and output.count("DAMAGED") == 2


def test_verify_finds_damage_outside_the_stores(
    workspace: Workspace, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = next((workspace.root / "corpora").glob("*/part-00000.parquet"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert main(["store", "verify", "--root", str(workspace.root)]) == 1
    output = capsys.readouterr().out
    assert f"corpora/{shard.parent.name}: DAMAGED" in output and "part-00000.parquet was altered" in output


def test_a_missing_or_damaged_shard_is_made_again(workspace: Workspace, prepared: Prepared) -> None:
    store = prepared.setting[Sentences].only_store
    path = shards(workspace, store)[0]
    whole = path.read_bytes()
    path.unlink()
    build_stores(workspace, [store], local=True)
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(Hindered, match="quarantine"):
        open_store(workspace, store).gather(np.array([0]))
    build_stores(workspace, [store], local=True)
    assert path.read_bytes() == whole
