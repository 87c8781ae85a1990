"""Tables and figures of runs, from a small MLflow database written by our tracker."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.reports.comparison_tables import as_csv, as_markdown, label
from stillhouse.reports.cost_maps import maps, selecting
from stillhouse.reports.entries import Entry, entries, over_seeds
from stillhouse.sweeps.test_log import tag_tested_runs
from stillhouse.tracking import BEST_TRIAL, Row
from stillhouse.tracking.location import tracking_uri
from stillhouse.tracking.mlflow_tracker import MLflowTracker
from stillhouse.tracking.reading import read_runs

QUALITY = "docsearch_cosine_mrr@10"
COST = {"parameters": 17e6, "megabytes": 69.0, "sentences_per_second": 339.4, "latency_ms_p50": 6.04}
LYING = {"docsearch_alignment": 0.4, "docsearch_uniformity": -2.5}


def record_sweep(root: Path, name: str, seed: int, sentences: int) -> None:
    """Record three trials; trial 1 is the best and trial 2 is stopped early."""
    folder = root / "sweeps" / name
    folder.mkdir(parents=True)
    tracker = MLflowTracker(tracking_uri(root), "stillhouse-toy", folder)
    facts = {
        "method": "ibkd",
        "seed": seed,
        "selected_by": QUALITY,
        "sentences": sentences,
        "store": f"s{sentences}",
    }
    tracker.run((name,), f"ibkd sweep {name}", facts)
    for number, (rate, state) in enumerate(((1e-4, "finished"), (3e-5, "finished"), (1e-5, "stopped early"))):
        trial = (name, f"trial-{number:04d}")
        quality = 0.4 + 0.1 * (number == 1) + 0.01 * seed + sentences / 1e6
        figures = {f"dev/{QUALITY}": quality, "seconds": 80.0}
        figures |= {f"dev/{each}": value + quality / 10 for each, value in LYING.items()}
        tracker.run(trial, f"trial {number}", {"rate": rate})
        tracker.run((*trial, "distil"), "distil", {"fingerprint": f"012{number + 3}"})
        tracker.metrics(trial, [Row(100, 1e9, figures)])
        if state == "finished":
            tracker.metrics(trial, [Row(100, 1e9, {f"cost/{each}": value for each, value in COST.items()})])
        tracker.finish(trial, state)
    tested = {"student": (0.39, 69.0), "teacher": (0.49, 90.9), "baseline": (0.37, 69.0)}
    report = {
        f"test/{who}/{each}": value
        for who, (quality, size) in tested.items()
        for each, value in {QUALITY: quality, **LYING, **COST, "megabytes": size, "threads": 2.0}.items()
    }
    tracker.metrics((name,), [Row(3, 1e9, {**report, BEST_TRIAL: 1.0, f"dev/teacher/{QUALITY}": 0.6})])
    tracker.finish((name,))
    assert tracker.close(300) == ""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, database: Path) -> Path:
    """A workspace with three sweeps: one with two seeds, and another on more sentences."""
    folder = tmp_path_factory.mktemp("compared")
    shutil.copy(database, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for name, seed, sentences in (("one", 0, 1000), ("two", 1, 1000), ("more", 0, 20000)):
            record_sweep(folder, name, seed, sentences)
    return folder


def test_trials_and_tested_models_are_rows(root: Path) -> None:
    lines = entries(read_runs(f"sqlite:///{root / 'mlflow.db'}", runs=["more"]))
    assert [(line.name, line.kind) for line in lines] == [
        ("teacher", "teacher"),
        ("MSE baseline", "baseline"),
        ("trial 0", "trial"),
        ("trial 1", "best"),
        ("trial 2", "trial"),
    ]
    teacher, best = lines[0].figures, lines[3].figures
    assert teacher["dev/docsearch_cosine_mrr_at_10"] == 0.6 and teacher["megabytes"] == 90.9
    assert best["dev/docsearch_cosine_mrr_at_10"] == pytest.approx(0.52)
    assert best["test/docsearch_cosine_mrr_at_10"] == 0.39 and best["seconds"] == 80
    assert "test/threads" not in best and not lines[4].whole


def test_seeds_become_one_row(root: Path) -> None:
    lines = entries(read_runs(f"sqlite:///{root / 'mlflow.db'}", experiment="toy"))
    names = [line.name for line in lines if line.runs > 1]
    assert names == ["one: trial 0, two: trial 0 (2 seeds)", "one: trial 1, two: trial 1 (2 seeds)"]
    first = next(line for line in lines if line.runs > 1)
    assert first.figures["dev/docsearch_cosine_mrr_at_10"] == pytest.approx(0.406)
    assert first.spread["dev/docsearch_cosine_mrr_at_10"] == pytest.approx(0.01 / 2**0.5)
    assert len([line for line in lines if line.state == "stopped early"]) == 3
    assert sum(line.runs for line in lines) == 3 * 5


def test_sweeps_with_equal_seeds_are_not_merged() -> None:
    lines = [Entry(f"t{at}", "trial", "s", "finished", {"seed": "0", "rate": "1"}, {}) for at in range(2)]
    assert over_seeds(lines) == lines


def table() -> list[Entry]:
    best = {
        "dev/docsearch_cosine_mrr_at_10": 0.51234,
        "parameters": 17e6,
        "megabytes": 69.04,
        "seconds": 80.4,
    }
    return [
        Entry("teacher", "teacher", "s", "tested", {"method": "ibkd"}, {"megabytes": 90.9}),
        Entry("trial 0", "trial", "s", "failed", {"method": "ibkd", "rate": "0.00012345", "text": "a|b"}, {}),
        Entry(
            "trial 1",
            "best",
            "s",
            "finished",
            {"method": "ibkd", "rate": "3e-05", "text": "c"},
            best,
            {"dev/docsearch_cosine_mrr_at_10": 0.00321},
            3,
        ),
    ]


def test_markdown_and_csv() -> None:
    assert as_markdown(table(), "T").splitlines() == [
        "# T",
        "",
        "All runs: method ibkd.",
        "",
        r"\* is the best student, which was exported. ± is the standard deviation over seeds.",
        "",
        "|  | rate | text | dev docsearch mrr@10 | parameters | MB | seconds | ended |",
        "| :-- | --: | --: | --: | --: | --: | --: | :-- |",
        "| teacher | – | – | – | – | 90.9 | – | tested |",
        r"| trial 0 | 0.000123 | a\|b | – | – | – | – | failed |",
        "| trial 1 * | 3e-05 | c | 0.5123 ± 0.0032 | 17.00 M | 69.0 | 80 | finished |",
    ]
    rows = list(csv.DictReader(as_csv(table()).splitlines()))
    assert rows[2]["dev/docsearch_cosine_mrr_at_10"] == "0.51234" and rows[2]["runs"] == "3"
    assert rows[2]["dev/docsearch_cosine_mrr_at_10 sd"] == "0.00321" and rows[0]["rate"] == ""
    assert label("latency_ms_p50") == "latency, ms" and label("loss") == "loss"


def test_maps_without_data_are_left_out() -> None:
    assert maps(table(), selecting(table())) == []
    assert selecting([Entry("r", "run", "", "finished", {}, {"loss": 1.0})]) == ""


def test_compare_writes_tables_and_figures_and_logs_them(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(root, tmp_path / "runs")
    summary = tmp_path / "summary.json"
    flags = ["--experiment", "toy", "--root", str(tmp_path / "runs"), "--json", str(summary)]
    for _ in range(2):
        assert main(["compare", *flags]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("one: teacher") for line in printed) and "dev docsearch" in printed[0]
    assert "/#/compare-runs?runs=%5B%22" in printed[-1] and "experiments=%5B%221%22%5D" in printed[-1]
    report = json.loads(summary.read_text())
    folder = Path(report["folder"])
    figures = ["quality-size", "quality-latency", "alignment-uniformity", "data-sentences"]
    assert report["files"] == ["comparison.md", "comparison.csv", "comparison.html"]
    assert report["quality"] == "docsearch_cosine_mrr_at_10"
    page = (folder / "comparison.html").read_text()
    assert re.findall(r'data-for="([\w-]+)"', page) == figures and page.count("<table>") == 3
    assert "<script src=" not in page and "Plotly.newPlot" in page, "the page is one file"
    for split, first in (("dev", "one: teacher"), ("test", "one: teacher")):
        table = page.split(f"Quality ({split}) and cost, sorted by {split} docsearch mrr@10")[1].split(
            "</table>"
        )[0]
        names = re.findall(r'<td class="text">([^<]+)</td><td>([\d.]+)', table)
        assert names[0][0] == first, "the best trial is at the top"
        assert [float(value) for _, value in names] == sorted((float(v) for _, v in names), reverse=True)
    assert "0.5060 ± 0.0071" in page
    client = MlflowClient(tracking_uri(tmp_path / "runs"))
    experiment = client.get_experiment_by_name("stillhouse-toy").experiment_id
    (kept,) = client.search_runs([experiment], "tags.`stillhouse.comparison` != ''")
    assert kept.info.run_name == "Comparison of toy" and kept.info.status == "FINISHED"


def test_opening_a_test_set_is_logged_in_the_models_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(root)
    assert tag_tested_runs(workspace, "abc", str(root / "sweeps/two/export")) == 1
    assert tag_tested_runs(workspace, "abc", str(root / "stages/distil-0123")) == 3
    assert tag_tested_runs(workspace, "abc", "all-MiniLM-L6-v2") == 0
    runs = read_runs(f"sqlite:///{root / 'mlflow.db'}", runs=["two"])
    (sweep,) = (run for run in runs if run.level == "sweep")
    tags = MlflowClient(tracking_uri(root)).get_run(sweep.id).data.tags
    assert tags["stillhouse.opened.abc"].endswith("by evaluate")


@each_row(
    ("flags", "message"),
    [
        ([], "either runs or --experiment must be given"),
        (["mor"], "Did you mean more"),
        (["trial 1"], "`trial 1` names one run"),
        (["--experiment", "nothing"], "unknown MLflow experiment `nothing`"),
        (["one", "--format", "pdf"], "--format must name some of md, csv, html"),
        (["one", "--quality", "loss"], "--quality must be one of docsearch_alignment"),
        (["one", "--root", "nowhere"], "MLflow must hold runs"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    flags: list[str],
    message: str,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--root", str(root), *flags]) == 2
    line = capsys.readouterr().err
    assert message in line and len(line.splitlines()) == 1
