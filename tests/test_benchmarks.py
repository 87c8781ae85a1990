"""Shared arithmetic of the benchmarks; no benchmark is run here."""

import dataclasses
import hashlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stillhouse.core.identity import canonical, spec
from stillhouse.losses.contrastive import InfoNCE
from stillhouse.losses.cosine import CosineDistance
from stillhouse.values.data import AllRows, Examples, TextTable
from stillhouse.values.stage import Optimizer, Stage

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that imports a benchmark; the modules are removed again, as their names are short."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_runs_alternate_and_warm_ups_are_not_counted(load: Any) -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in ("ours", "peer")}
    seconds = load("harness").in_turn(runs, repeats=2, warmups=1)
    assert order == ["ours", "peer"] * 3
    assert {name: len(found) for name, found in seconds.items()} == {"ours": 2, "peer": 2}


def test_the_ratio_is_the_median_of_pairs(load: Any) -> None:
    harness = load("harness")
    # The ratio of separate medians would be 4 / 2 = 2.
    assert harness.ratio([2.0, 4.0, 30.0], [2.0, 1.0, 10.0]) == 3.0
    with pytest.raises(ValueError):
        harness.ratio([1.0], [1.0, 2.0])


def test_the_rate_of_a_pool_is_measured_between_its_files(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools, names = load("pools"), [f"{number}.arrow" for number in range(9)]
    # First two files at once; later ones take twice as long.
    moments = (10, 10, 11, 12, 13, 14, 16, 18, 20)
    for name, moment in zip(names, moments, strict=True):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (moment, moment))
    shards = [{"name": name, "rows": 100} for name in reversed(names)]
    monkeypatch.setattr(pools, "read_manifest", lambda folder: {"shards": shards})
    held = SimpleNamespace(path=lambda store: tmp_path)
    assert pools.running_rate(held, None, 2) == pytest.approx(700 / 10)
    assert pools.running_rate(held, None, 1, (1 / 3, 2 / 3)) == pytest.approx(200 / 2)
    assert pools.running_rate(held, None, 1, (2 / 3, 1.0)) == pytest.approx(200 / 4)
    with pytest.raises(AssertionError, match="tell nothing"):
        pools.running_rate(held, None, 3, (0.0, 1 / 3))


def test_a_flame_graph_is_summed_by_part_without_waiting_threads(load: Any) -> None:
    lines = [
        "main (jobs/sweep_ibkd.py:9);docstrings (stillhouse/corpora/pydocs/docstrings.py:64) 30",
        "run (stillhouse/training/fit.py:90);<module> (<frozen importlib._bootstrap>);x (torch/a.py:1) 10",
        "run (stillhouse/training/fit.py:90);_engine_run_backward (torch/autograd/graph.py:979) 50",
        "main_loop (worker.py:1);Worker.main_loop (ray/_private/worker.py:1069) 900",
        "somewhere (else.py:1) 10",
        "",
    ]
    busy, waiting = load("flame").by_part(lines)
    expected = {"backward passes": 50, "reading the corpus": 30, "importing libraries": 10, "other": 10}
    assert list(busy.items()) == list(expected.items()) and waiting == 900
    assert "reading the corpus" in load("flame").report(lines) and "30.0 %" in load("flame").report(lines)


def test_a_row_says_whether_the_target_is_met(load: Any) -> None:
    harness = load("harness")
    assert harness.at_least(2.5, 2.5) == {"target": "≥ 2.5×", "measured": "2.50×", "met": True}
    assert not harness.at_least(2.49, 2.5)["met"]
    assert harness.at_most(0.3, 0.3, "s") == {"target": "≤ 0.3 s", "measured": "0.3 s", "met": True}
    assert not harness.at_most(0.31, 0.3, "s")["met"]


def test_the_table_marks_a_miss(load: Any) -> None:
    harness = load("harness")
    met = harness.Row("a", "b", **harness.at_least(3, 2))
    missed = harness.Row("c", "d", **harness.at_least(1, 2))
    _, _, first, second = harness.table([met, missed]).splitlines()
    assert "missed" not in first and "**missed** 1.00×" in second
    assert harness.spread([3.0, 1.0, 2.0]) == "2 s (1–3)"


def test_every_listed_script_exists(load: Any) -> None:
    scripts = [script for section in load("run").SCRIPTS.values() for script in section]
    assert all((BENCHMARKS / f"{script}.py").exists() for script in scripts)


def test_the_page_is_rendered_from_stored_results(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load("run")
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    row = {"what": "a", "against": "b", "target": "≥ 1×", "measured": "2×", "met": True}
    kept = {"date": "2026-01-02", "machine": {"cpu": "some"}, "rows": [row]}
    (tmp_path / "search.json").write_text(json.dumps(kept))
    page = run.page(["`ddp.py` ended with exit code 1"])
    assert "2026-01-02: cpu some" in page
    assert "## Search" in page and "## Training" not in page and "| a | b | ≥ 1× | 2× |" in page
    assert "- `ddp.py` ended" in page and "not run yet: `embedding.py`" in page and "`search.py`" not in page


def test_a_script_that_times_out_is_ended_with_its_children(load: Any) -> None:
    import psutil

    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    process = subprocess.Popen([sys.executable, "-c", child])
    started = psutil.Process(process.pid)
    while not (children := started.children()):
        time.sleep(0.01)
    load("run").end(process.pid)
    process.wait(5)
    # An orphan that its new parent does not reap stays in the process table.
    left = [one for one in children if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert not left


def test_stage_metrics_separate_steps_from_evaluations(load: Any, tmp_path: Path) -> None:
    sweeping = load("sweeping")
    report = [(2, 10.0, {"loss": 1.0}), (4, 14.0, {"loss": 1.0}), (4, 17.0, {"agreement": 0.5})]
    report += [(6, 20.0, {"loss": 1.0}), (6, 22.0, {"agreement": 0.6})]
    lines = [json.dumps({"step": step, "time": at, "metrics": figures}) for step, at, figures in report]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert sweeping.evaluation_seconds(tmp_path) == 5.0
    assert sweeping.training_seconds(tmp_path) == 7.0
    (tmp_path / "manifest.json").write_text('{"seconds": 9.5}')
    assert sweeping.training_seconds(tmp_path) == 9.5


PAPER = """# A paper, Table 1.
#
#   stillhouse train --file search_spaces/papers/one_table1.yaml --data-root DATA
#   stillhouse evaluate STAGE --suite pairs --pairs-of fever --data-root DATA     # of each row
method: mse
sentences: {corpus: $STILLHOUSE_DATA/all.txt}
variants: {first: {}, second: {values: {learning_rate: 1e-3}}, large: {}}
scale: {small: {budget: {distil: 64}, variants: {large: null}}}
"""


class FakeCommands:
    """Commands that succeed, but those of one variant; what they are given is kept."""

    def __init__(self, stages: Path) -> None:
        self.given: list[str] = []
        self.failing = ""
        self.code = 1
        self._stages = stages

    def __call__(self, words: list[str]) -> int:
        self.given.append(" ".join(words[: words.index("--json")]))
        if self.failing and self.failing in words:
            print("stillhouse: a loss is not finite", file=sys.stderr, flush=True)
            return self.code
        print("stillhouse: note: few steps", file=sys.stderr, flush=True)
        found: Any = {"sts": {"STS-B": {"all": 61.25, "pairs": 3000}}}
        if words[0] == "train":
            last = next(self._stages.glob("last-*"))
            found = {"folder": str(last), "metrics": {"mrr@10": 0.5}, "seconds": 3, "gradient_shares": {}}
        Path(words[words.index("--json") + 1]).write_text(json.dumps(found))
        return 0


@pytest.fixture
def papers(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The script, on one file of two small variants, with a finished plan of two stages."""
    script = load("paper_tables")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one_table1.yaml").write_text(PAPER)
    first: Any = {"value": "Stage", "with": {"label": "first", "start_from": None}}
    last = {"value": "Stage", "with": {"label": "last", "start_from": first, "also": [first]}}
    for place, plan in enumerate((first, last)):
        text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        folder = tmp_path / "stages" / f"{plan['with']['label']}-{digest}"
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps(plan))
        manifest = {"steps": 4, "examples": 64, "seconds": 2.0, "metrics": {}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        # The first stage is older than any run, the last one newer.
        os.utime(folder / "manifest.json", (place * 1e11, place * 1e11))
    commands = FakeCommands(tmp_path / "stages")
    monkeypatch.setattr(script, "PAPERS", tmp_path / "files")
    monkeypatch.setattr(script, "stillhouse", commands)
    monkeypatch.setattr(script, "machine", lambda: {"cpu": "some"})
    monkeypatch.setenv("STILLHOUSE_DATA", "")
    monkeypatch.setattr(
        sys, "argv", ["papers", "--root", str(tmp_path / "runs"), "--data-root", "/data", "--suites"]
    )
    return SimpleNamespace(script=script, commands=commands, root=tmp_path / "runs", files=tmp_path / "files")


def test_every_variant_of_a_papers_file_is_trained_and_measured_with_its_suite(papers: Any) -> None:
    assert papers.script.main() == 0
    file, where = papers.files / "one_table1.yaml", f"--root {papers.root}"
    train = f"train --local --file {file} {where} --scale small --variant"
    last = next((papers.root.parent / "stages").glob("last-*"))
    evaluate = f"evaluate {last} --suite pairs --pairs-of fever {where} --data-root /data"
    assert papers.commands.given == [f"{train} first", evaluate, f"{train} second", evaluate]
    page = (papers.root / "papers.md").read_text()
    row = "| `one_table1` | first | 0 | 0 | [first 4 / 2 s], last 4 / 2 s | mrr@10 0.5 |"
    assert row in page and "pairs --pairs-of fever (0 s): sts.STS-B.all 61.25, sts.STS-B.pairs 3000 |" in page
    assert "* note: few steps (one_table1 first, one_table1 second)" in page
    results = json.loads((papers.root / "papers.json").read_text())["results"]
    assert [(each["variant"], each["dev"]) for each in results] == [
        ("first", {"mrr@10": 0.5}),
        ("second", {"mrr@10": 0.5}),
    ]


def test_finished_variants_are_skipped_and_failed_or_changed_ones_run_again(papers: Any) -> None:
    papers.commands.failing = "second"
    assert papers.script.main() == 1
    assert "| second | 0 **failed** | 0 |" in (papers.root / "papers.md").read_text()
    papers.commands.failing = ""
    papers.commands.given.clear()
    assert papers.script.main() == 0
    assert [" ".join(words.split()[-2:]) for words in papers.commands.given] == [
        "--variant second",
        "--data-root /data",
    ]
    papers.commands.given.clear()
    assert papers.script.main() == 0 and papers.commands.given == []
    file = papers.files / "one_table1.yaml"
    file.write_text(file.read_text().replace("distil: 64", "distil: 128"))
    assert papers.script.main() == 0 and len(papers.commands.given) == 4


def test_an_interrupt_ends_the_papers_and_keeps_nothing_of_its_variant(papers: Any) -> None:
    papers.commands.failing, papers.commands.code = "first", 130
    assert papers.script.main() == 130
    assert len(papers.commands.given) == 1 and not list((papers.root / "results").glob("*"))


def test_the_stages_of_a_papers_row_are_those_of_the_plan(load: Any) -> None:
    stage = _stage("distil")
    last = dataclasses.replace(stage, label="finetune", start_from=stage)
    plan = json.loads(json.dumps(canonical(last)))
    assert load("paper_tables").stage_names(plan) == [
        ("distil", stage.fingerprint),
        ("finetune", last.fingerprint),
    ]


def _stage(label: str) -> Stage:
    return Stage(
        label=label,
        student=spec(CosineDistance),
        objective=spec(InfoNCE, temperature=0.1),
        examples=Examples({"text": TextTable("0")}, AllRows()),
        stores={},
        budget=64,
        batch_size=32,
        optimizer=Optimizer(1e-3),
    )
