"""Commands after a sweep take its experiment, and send the teacher no text that it has embedded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import STUCK_S
from small_experiment import sentences

import stillhouse
from stillhouse.cli.main import main
from stillhouse.teachers import embedding
from stillhouse.teachers.build_state import Build

ROOT = Path(__file__).resolve().parents[2]
SPACE = """
method: ibkd
values: {finetune_batch_size: 16, gamma: 0.25}
sentences: {count: 0, held_out: 60}
budget: {distil: 128, finetune: 32, evaluations: 1}
max_length: 16
search:
  space: {distil_batch_size: [8, 16, 32]}
"""


@pytest.fixture
def swept(tmp_path: Path, tiny_model: Path, ray_folder: str) -> Path:
    """A workspace with a sweep `ibkd` of two trials and a refit, as the job leaves it."""
    texts = sentences(300)
    (tmp_path / "words.txt").write_text("\n".join(texts))
    pairs = ({"query": texts[at], "passage": texts[at + 1]} for at in range(0, 298, 2))
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (tmp_path / "file.yaml").write_text(SPACE)
    data = ["--corpus", "words.txt", "--labelled", "pairs.jsonl", "--negatives", "1"]
    search = ["--space", "file.yaml", "--trials", "2", "--sampler", "random", "--refit", "256"]
    run_job(tmp_path, ray_folder, "jobs/sweep_ibkd.py", "--teacher", str(tiny_model), *data, *search)
    return tmp_path


def run_job(folder: Path, ray_folder: str, job: str, *words: str, code: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, str(ROOT / job), *words, "--root", "runs", "--json", "report.json"],
        cwd=folder,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": ray_folder, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=STUCK_S,
        check=False,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch, swept: Path) -> list[str]:
    """The stores that are built from now on; commands run in the folder of the workspace."""
    built: list[str] = []
    build = Build

    def noted(work: Any) -> Any:
        built.append(work.store.label)
        return build(work)

    monkeypatch.setattr(embedding, "Build", noted)
    monkeypatch.chdir(swept)
    return built


@pytest.mark.ray
def test_commands_after_a_sweep_take_its_experiment(
    swept: Path, embedded: list[str], capsys: pytest.CaptureFixture[str], ray_folder: str
) -> None:
    report = json.loads((swept / "report.json").read_text())
    dev, teacher = report["student"]["dev"], json.loads(next(swept.glob("**/teacher-dev.json")).read_text())
    for name in ("ibkd", "runs/sweeps/ibkd/export"):
        assert main(["evaluate", name, "--root", "runs", "--json", "found.json"]) == 0
        found = json.loads((swept / "found.json").read_text())
        assert found["metrics"] == dev
        assert all(found["teacher"][figure] == teacher[figure] for figure in dev)
        printed = capsys.readouterr()
        assert "as sweep ibkd: 16 tokens, 1 negative" in printed.err and "kept " in printed.out
    assert stillhouse.evaluate("ibkd", root="runs") == dev
    for words in (
        ["doctor", "ibkd", "--set", "distil_batch_size=32"],
        ["train", "ibkd", "--local", "--set", "distil_batch_size=32"],
        ["train", "mse", "--like", "ibkd", "--local", "--set", "batch_size=32"],
        ["plan", "ibkd", "--trials", "40"],
        ["evaluate", "ibkd", "--final"],
        ["export", "ibkd", "exported"],
        ["evaluate", "exported", "--like", "ibkd", "--against", "ibkd"],
    ):
        found_errors = words[0] == "doctor"  # The tiny teacher was never trained.
        assert main([*words, "--root", "runs"]) == found_errors, (words, capsys.readouterr().err)
        printed = capsys.readouterr()
        assert "no vectors of this teacher are stored yet" not in printed.out + printed.err
        assert ("as sweep ibkd" in printed.err) == (words[0] != "export")
    assert embedded == []
    assert main(["sweep", "ibkd", "--root", "runs", "--seed", "5", "--sampler", "tpe"]) == 2
    assert "search of sweep 'ibkd' differs: sampler random → tpe, seed 0 → 5" in capsys.readouterr().err
    stores = sorted((swept / "runs/stores").iterdir())
    other = run_job(swept, ray_folder, "jobs/sweep.py", "ibkd", "--sentences", "120", code=2)
    assert "the setting of sweep 'ibkd' differs: sentences.count " in other
    assert sorted((swept / "runs/stores").iterdir()) == stores, "refused before anything is embedded"
    more = run_job(swept, ray_folder, "jobs/sweep.py", "ibkd", "--trials", "3")
    assert "as sweep ibkd" in more and len(json.loads((swept / "report.json").read_text())["trials"]) == 3
