"""`stillhouse verify` finds damage and changes nothing; a command that needs a damaged file makes it anew."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_experiment import quick_experiment

import stillhouse
from stillhouse import BadInput, Experiment
from stillhouse.cli.main import main
from stillhouse.core.artifacts import sha256_of
from stillhouse.core.errors import Hindered
from stillhouse.core.integrity import FILES
from stillhouse.core.notes import write_note
from stillhouse.search.searcher import StudySearcher
from stillhouse.search.space import Float, Space
from stillhouse.sweeps.stage_export import checksums_of_export
from stillhouse.sweeps.workspace_check import Checked
from stillhouse.tracking.journal import Journal
from stillhouse.training import checkpoint

VALUES = {"batch_size": 16, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Experiment:
    made: Experiment = quick_experiment(tmp_path_factory.mktemp("texts"), tiny_model)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, experiment: Experiment) -> Path:
    """A workspace with a trained stage, and a sweep as a command leaves it behind."""
    root = tmp_path_factory.mktemp("made") / "runs"
    trained = stillhouse.train("mse", experiment, values=VALUES, root=root)
    sweep = root / "sweeps" / "s"
    write_note(sweep / "sweep.json", {"identity": {}})
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
    (root / "openings.jsonl").write_text('{"suite": "a", "what": "b", "time": "c"}\n')
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own copy of the workspace."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "runs"
    shutil.copytree(made, root)
    sweep, (manifest,) = root / "sweeps" / "s", root.glob("stages/*/manifest.json")
    files = checksums_of_export(sweep / "export")
    exported = {"weights_sha256": "", "parity": 1.0, "stage": str(manifest.parent), FILES: files}
    write_note(sweep / "export.json", exported)
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
        "stores/words-train-*/part-*.arrow",
        "stores/words-train-*/manifest.json",
        "stages/*/student.safetensors",
        "sources/*.json",
    ],
)
def test_what_is_damaged_is_found_and_made_again_by_the_command_that_needs_it(
    root: Path, experiment: Experiment, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (student,) = root.glob("stages/*/student.safetensors")
    weights, path = sha256_of(student), sorted(root.glob(pattern))[0]
    if path.suffix == ".json":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        flip(path)
    before = contents(root)
    assert main(["verify", "--root", str(root)]) == 1
    assert contents(root) == before
    shown = capsys.readouterr().out
    assert "1 DAMAGED" in shown and path.name in shown
    if "stages" not in pattern:
        shutil.rmtree(student.parent)  # A finished stage reads nothing else.
    if path.suffix == ".arrow":  # A store is compared while it is read.
        with pytest.raises(Hindered, match="Run the same command again"):
            stillhouse.train("mse", experiment, values=VALUES, root=root)
    stillhouse.train("mse", experiment, values=VALUES, root=root)
    assert path.exists() and sha256_of(student) == weights
    assert list((root / "quarantine").rglob(path.name))
    assert not wrong(stillhouse.verify(root), root)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("study.db", "sweeps", "takes its backup"),
        ("test-1.json", "sweeps", "stays as it is"),
        ("journal.jsonl", "sweeps", "unless it is recorded again"),
        ("export.json", "exports", "exports the student again"),
        ("export/model.safetensors", "exports", "exports the student again"),
    ],
)
def test_what_a_sweep_keeps_is_looked_at(root: Path, name: str, kind: str, words: str) -> None:
    path = root / "sweeps" / "s" / name
    match path.suffix:
        case ".safetensors":
            flip(path)
        case ".db":
            os.truncate(path, 9000)
        case _:
            path.write_bytes(b"?" + path.read_bytes()[1:])
    (found,) = wrong(stillhouse.verify(root), root).values()
    assert found.kind == kind and words in found.remedy


def test_a_model_that_was_logged_to_mlflow_is_compared_with_its_sums(root: Path) -> None:
    logged = root / "mlartifacts" / "models" / "m-1" / "artifacts" / "model"
    shutil.copytree(root / "sweeps" / "s" / "export", logged)
    assert not wrong(stillhouse.verify(root), root)
    flip(logged / "model.safetensors")
    (found,) = wrong(stillhouse.verify(root), root).values()
    assert found.path == logged and found.kind == "MLflow" and "serve the sweep's export" in found.remedy


def test_a_damaged_checkpoint_of_an_unfinished_stage_is_found(root: Path) -> None:
    (folder,) = [path.parent for path in root.glob("stages/*/manifest.json")]
    (folder / "manifest.json").unlink()
    path = checkpoint.path_of(folder, 3)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"no archive")
    found, delivered = wrong(stillhouse.verify(root), root).values()
    assert delivered.kind == "exports" and "unfinished" in str(delivered.problems)
    assert found.kind == "checkpoints" and "from the start" in found.remedy


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_what_the_system_refuses_to_read_stays(
    root: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Any:
        raise OSError(number, os.strerror(number), str(path))

    before = contents(root)
    monkeypatch.setattr("stillhouse.core.integrity.sha256_of", refuse)
    found = wrong(stillhouse.verify(root), root)
    monkeypatch.undo()
    assert found and all("stays as it is" in each.remedy for each in found.values())
    assert contents(root) == before


def test_verify_needs_a_workspace(root: Path) -> None:
    with pytest.raises(BadInput, match="there is no folder"):
        stillhouse.verify(root / "none")
