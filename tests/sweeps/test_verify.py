"""`stillhouse verify` finds every kind of damage, and changes nothing unless it is asked to."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_experiment import quick_experiment  # type: ignore[import-not-found]

import stillhouse
from stillhouse import BadInput, Experiment
from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, locked, read_manifest, sha256_of, write_array
from stillhouse.core.errors import Hindered
from stillhouse.core.integrity import FILES
from stillhouse.core.notes import write_note, write_note_twice
from stillhouse.evaluation.search.passage_vectors import part_path
from stillhouse.search.searcher import StudySearcher
from stillhouse.search.space import Float, Space
from stillhouse.sweeps.export import checksums_of_export
from stillhouse.sweeps.test_log import record_test_use
from stillhouse.sweeps.verify import Checked
from stillhouse.tracking.journal import Journal
from stillhouse.training import checkpoint
from stillhouse.training.facts import read_facts

VALUES = {"batch_size": 16, "learning_rate": 1e-3}


@pytest.fixture
def experiment(tmp_path: Path, tiny_model: Path) -> Experiment:
    made: Experiment = quick_experiment(tmp_path, tiny_model)
    return made


@pytest.fixture
def root(tmp_path: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a trained stage, and a sweep as a command leaves it behind."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "runs"
    trained = stillhouse.train("mse", experiment, values=VALUES, root=root)
    sweep = root / "sweeps" / "s"
    write_note_twice(sweep / "sweep.json", {"identity": {}})
    search = StudySearcher(
        sweep / "study.db", Space("mse", {"rate": Float(0.1, 1.0)}), trials=2, objective="q", full_budget=10
    )
    journal = Journal(sweep)
    for turn in range(2):
        search.suggest(f"t{turn}")
        search.on_trial_complete(f"t{turn}", {"q": 0.5, "examples_seen": 10, "finished": True})
        key = ["s", f"trial-{turn:04d}"]
        journal.append(do="run", key=key, name="t", parameters={}, tags={}, documents={})
        journal.append(do="state", key=key, state="finished", reason="")
    journal.close()
    write_note(sweep / "test-1.json", {"student": {"metrics": {"q": 0.25}}})
    stillhouse.export(trained.folder, sweep / "export")
    files = checksums_of_export(sweep / "export")
    write_note(
        sweep / "export.json",
        {"weights_sha256": "", "parity": 1.0, "stage": str(trained.folder), FILES: files},
    )
    (root / "openings.jsonl").write_text('{"suite": "a", "what": "b", "time": "c"}\n')
    return root


def contents(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix not in (".log", ".lock"))
    return {str(path.relative_to(root)): sha256_of(path) for path in files}


def wrong(found: list[Checked], root: Path) -> dict[str, Checked]:
    return {str(each.path.relative_to(root)): each for each in found if each.problems}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def flip_a_digit(path: Path) -> None:
    """Change a digit of a number: the file stays valid JSON."""
    content = bytearray(path.read_bytes())
    at = next(i for i in range(len(content) // 2, len(content)) if chr(content[i]) in "24")
    content[at] ^= 1
    path.write_bytes(content)


def test_a_good_workspace_is_intact_and_nothing_in_it_changes(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = contents(root)
    assert main(["verify", "--root", str(root), "--json", str(tmp_path / "v.json")]) == 0
    assert contents(root) == before
    shown = capsys.readouterr().out
    for kind in ("corpora", "tokens", "stores", "stages", "notes", "sweeps", "exports", "test log"):
        assert f"{kind} " in shown
    assert "none damaged" in shown and "DAMAGED" not in shown
    entries = json.loads((tmp_path / "v.json").read_text())
    assert {"stores", "sweeps"} < {entry["kind"] for entry in entries}
    assert not any(entry["problems"] for entry in entries)


@pytest.mark.parametrize(
    "pattern",
    [
        "corpora/*/*.parquet",
        "tokens/*/*.npy",
        "stores/*/part-*.arrow",
        "stores/*/manifest.json",
        "stages/*/student.safetensors",
        "sources/*.json",
    ],
)
def test_what_is_damaged_is_found_moved_and_made_again(
    root: Path, experiment: Experiment, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = {path: sha256_of(path) for path in root.glob("stages/*/student.safetensors")}
    path = sorted(root.glob(pattern))[0]
    flip(path)
    before = contents(root)
    assert main(["verify", "--root", str(root)]) == 1
    assert contents(root) == before
    shown = capsys.readouterr().out
    assert "1 DAMAGED" in shown and path.name in shown and "--repair mends" in shown
    assert main(["verify", "--root", str(root), "--repair"]) == 0
    count = 2 if path.parent.parent.name == "stages" else 1  # with it goes what the sweep delivered
    assert f"{count} damaged, {count} mended" in capsys.readouterr().out
    assert not path.exists() and list((root / "quarantine").rglob(path.name))
    assert not wrong(stillhouse.verify(root), root)
    stillhouse.train("mse", experiment, values=VALUES, root=root)
    assert path.exists() or "tokens" in pattern, "a finished stage needs no tokens"
    assert {path: sha256_of(path) for path in weights} == weights
    assert not wrong(stillhouse.verify(root), root)


def test_every_damaged_file_of_an_artifact_is_moved(root: Path) -> None:
    (folder,) = [path.parent for path in root.glob("stages/*/manifest.json")]
    names = sorted(read_manifest(folder)[FILES])
    assert len(names) >= 1
    for name in names:
        flip(folder / name)
    found, delivered = wrong(stillhouse.verify(root, repair=True), root).values()
    assert len(found.problems) == len(names) and found.mended and delivered.kind == "exports"
    assert not any((folder / name).exists() for name in [*names, "manifest.json"])


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("study.db", "sweeps", "is taken"),
        ("test-1.json", "sweeps", "makes it again"),
        ("sweep.json", "sweeps", "copy is taken"),
        ("journal.jsonl", "sweeps", "its copy has them"),
        ("export.json", "exports", "exports the student again"),
        ("export/model.safetensors", "exports", "exports the student again"),
    ],
)
def test_what_a_sweep_keeps_is_found_and_mended(root: Path, name: str, kind: str, words: str) -> None:
    path = root / "sweeps" / "s" / name
    flip(path) if path.suffix != ".db" else os.truncate(path, 9000)
    (found,) = wrong(stillhouse.verify(root), root).values()
    assert found.kind == kind and words in found.cost and found.wrong
    (mended,) = wrong(stillhouse.verify(root, repair=True), root).values()
    assert mended.mended and not mended.wrong
    assert not wrong(stillhouse.verify(root), root)


@pytest.mark.parametrize("name", ["plan.json", "facts.json", "metrics.jsonl"])
def test_what_describes_a_stage_is_mended_without_training(
    root: Path, experiment: Experiment, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = [path.parent for path in root.glob("stages/*/manifest.json")]
    path, before = folder / name, contents(folder)
    lines = path.read_bytes().splitlines(keepends=True)
    flip_a_digit(path)
    assert main(["verify", "--root", str(root)]) == 1
    shown = capsys.readouterr().out
    assert "1 DAMAGED" in shown and name in shown
    (found,) = wrong(stillhouse.verify(root, repair=True), root).values()
    assert found.kind == "stages" and found.mended and list((root / "quarantine").rglob(name))
    assert not wrong(stillhouse.verify(root), root)
    stillhouse.train("mse", experiment, values=VALUES, root=root)
    after = contents(folder)
    if path.suffix == ".jsonl":
        left = path.read_bytes().splitlines(keepends=True)
        assert len(left) == len(lines) - 1 and set(left) < set(lines), "the other lines stay"
        after[name] = before[name]
    assert after == before, "nothing is trained again"


def test_a_train_command_writes_the_description_of_a_stage_again(
    root: Path, experiment: Experiment, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder,) = [path.parent for path in root.glob("stages/*/manifest.json")]
    before = contents(folder)
    flip_a_digit(folder / "plan.json")
    flip_a_digit(folder / "facts.json")
    with pytest.raises(Hindered, match=r"facts\.json must be as it was written"):
        read_facts(folder)
    stillhouse.train("mse", experiment, values=VALUES, root=root)
    assert contents(folder) == before
    told = capfd.readouterr().err
    assert "plan.json was altered" in told and "facts.json is damaged" in told


def test_damaged_lines_of_logs_are_left_out_or_counted(root: Path) -> None:
    journal, log = root / "sweeps" / "s" / "journal.jsonl", root / "openings.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = (log, journal, journal.with_name("journal.copy.jsonl"))
    for path in damaged:
        path.write_bytes(b"{?" + path.read_bytes()[2:])
    before = contents(root)
    assert set(wrong(stillhouse.verify(root), root)) == {"openings.jsonl", "sweeps/s/journal.jsonl"}
    assert contents(root) == before
    found = wrong(stillhouse.verify(root, repair=True), root)
    assert len(found) == 2 and all(each.mended for each in found.values())
    assert journal.read_bytes() == b"".join(lines[1:])
    assert all(list((root / "quarantine").rglob(path.name)) for path in damaged)
    assert not wrong(stillhouse.verify(root), root)
    assert record_test_use(Workspace(root), "another suite", "x") == 1, (
        "the damaged line counts for every suite"
    )


@pytest.mark.parametrize("name", ["workspace.json", "workspace.copy.json"])
def test_a_damaged_format_is_found_and_mended(root: Path, name: str) -> None:
    flip(root / name)
    (found,) = wrong(stillhouse.verify(root), root).values()
    assert found.kind == "notes" and name in found.problems[0]
    assert wrong(stillhouse.verify(root, repair=True), root)["workspace.json"].mended
    assert not wrong(stillhouse.verify(root), root)


def test_damaged_vectors_of_passages_are_found_and_mended(root: Path) -> None:
    folder = root / "vectors" / "collection-0123456789abcdef"
    for part in range(2):
        write_array(part_path(folder, part), np.ones((3, 4), np.float32), sealed=True)
    assert not wrong(stillhouse.verify(root), root)
    flip(part_path(folder, 1))
    (found,) = wrong(stillhouse.verify(root), root).values()
    assert found.kind == "vectors" and found.problems == ("part-00001.npy was altered",)
    assert wrong(stillhouse.verify(root, repair=True), root)
    assert part_path(folder, 0).exists() and not part_path(folder, 1).exists()
    assert not wrong(stillhouse.verify(root), root)


def test_a_study_without_a_good_copy_is_left_in_its_place(root: Path) -> None:
    sweep = root / "sweeps" / "s"
    for copy in (sweep / "copies").iterdir():
        copy.unlink()
    os.truncate(sweep / "study.db", 9000)
    (found,) = wrong(stillhouse.verify(root, repair=True), root).values()
    assert found.wrong and "no good copy" in found.cost and (sweep / "study.db").exists()


def test_a_damaged_checkpoint_of_an_unfinished_stage_is_found(root: Path) -> None:
    (folder,) = [path.parent for path in root.glob("stages/*/manifest.json")]
    (folder / "manifest.json").unlink()
    path = checkpoint.path_of(folder, 3)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"no archive")
    found, delivered = wrong(stillhouse.verify(root), root).values()
    assert delivered.kind == "exports" and "unfinished" in str(delivered.problems)
    assert found.kind == "checkpoints" and "from the start" in found.cost
    assert wrong(stillhouse.verify(root, repair=True), root) and not path.exists()


def test_the_checkpoint_of_another_stage_is_found(root: Path) -> None:
    (folder,) = [path.parent for path in root.glob("stages/*/manifest.json")]
    (folder / "manifest.json").unlink()
    (root / "sweeps" / "s" / "export.json").unlink()  # which would be found too: it delivers the stage
    other = folder.with_name("other-0123456789abcdef")
    for step in (1, 2):
        checkpoint.save(folder, step, {"progress": {"best": []}})
        checkpoint.save(other, step, {"progress": {"best": []}})
    assert not wrong(stillhouse.verify(root), root)
    foreign = checkpoint.path_of(other, 2)
    foreign.rename(checkpoint.path_of(folder, 2))
    (found,) = wrong(stillhouse.verify(root), root).values()
    assert found.problems == (f"step-000000002.pt is the checkpoint of another stage, {other.name}",)
    assert "from step-000000001" in found.cost
    assert wrong(stillhouse.verify(root, repair=True), root) and checkpoint.steps(folder) == [1]


def test_temporary_files_are_removed_by_a_repair_alone(root: Path) -> None:
    leftover = root / "stages" / ".x.1.tmp"
    leftover.write_bytes(b"half")
    assert not wrong(stillhouse.verify(root), root) and leftover.exists()
    assert not wrong(stillhouse.verify(root, repair=True), root) and not leftover.exists()


def test_a_workspace_in_use_is_checked_and_not_repaired(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(root / ".lock"):
        assert main(["verify", "--root", str(root)]) == 0
        assert main(["verify", "--root", str(root), "--repair"]) == 2
    assert "a run is going on there" in capsys.readouterr().err
    with pytest.raises(BadInput, match="there is no folder"):
        stillhouse.verify(root / "none")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_what_the_system_refuses_to_read_stays(
    root: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Any:
        raise OSError(number, os.strerror(number), str(path))

    before = contents(root)
    monkeypatch.setattr("stillhouse.core.integrity.sha256_of", refuse)
    found = wrong(stillhouse.verify(root, repair=True), root)
    monkeypatch.undo()
    assert found and all(each.wrong and "stays as it is" in each.cost for each in found.values())
    assert contents(root) == before
