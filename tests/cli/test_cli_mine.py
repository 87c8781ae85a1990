"""Mining from the command line in one plain process: the file, a repeated run, its use as labelled text."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.corpora.reading.labelled import read_labelled
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.mined_pairs import pairs_of

WORDS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()
MINED = {"query", "passage", "negatives", "passage_cosine", "negatives_cosine"}


def lines(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> list[str]:
    """One workspace and teacher for all commands."""
    root = tmp_path_factory.mktemp("mine") / "runs"
    teacher = ["--teacher", str(tiny_model), "--max-length", "16", "--compute", "float32"]
    return ["--local", "--root", str(root), *teacher]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 pairs with an extra column of negatives, which mining must ignore."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = zip(lines(60, 0), lines(60, 1), strict=True)
    path.write_text(
        "".join(json.dumps({"query": q, "passage": p, "negative": "sun"}) + "\n" for q, p in rows)
    )
    return path


def mine(found: Path, *arguments: str) -> dict[str, Any]:
    assert main(["mine", *arguments, "--json", str(found)]) == 0
    read: dict[str, Any] = json.loads(found.read_text())
    return read


def test_mining_writes_file_and_report_and_repeats_identically(
    flags: list[str],
    pairs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "mined.jsonl"
    rule = ["--negatives", "3", "--min-score", "0.5"]
    arguments = ["--labelled", str(pairs), "--output", str(out), *rule, *flags]
    report = mine(tmp_path / "found.json", *arguments)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    given = {(row["query"], row["passage"]) for row in map(json.loads, pairs.read_text().splitlines())}
    assert report["pairs"] == len(rows) > 20
    assert report["left_out"] == {"without_vector": 0, "too_few_negatives": len(given) - len(rows)}
    for row in rows:
        assert set(row) == MINED and (row["query"], row["passage"]) in given
        assert len(set(row["negatives"])) == 3 and row["passage"] not in row["negatives"]
        assert row["negatives_cosine"] == sorted(row["negatives_cosine"], reverse=True)
        assert row["negatives_cosine"][-1] >= 0.5
        assert row["negatives_cosine"][0] < 0.95 * row["passage_cosine"] + 1e-5
    for name, key in (("positive", "passage_cosine"), ("negative", "negatives_cosine")):
        mean = np.mean([row[key] for row in rows])
        assert report[f"mean_{name}_cosine"] == pytest.approx(mean, abs=1e-5)
    found = capsys.readouterr().out
    assert (
        f"mined: {len(rows)} pairs with 3 negatives each" in found and "left out, too few negatives" in found
    )

    before, stamp = out.read_bytes(), out.stat().st_mtime_ns
    monkeypatch.setattr("stillhouse.training.inputs.build_stores", None)
    assert mine(tmp_path / "again.json", *arguments) == report
    assert out.stat().st_mtime_ns == stamp
    out.write_text("another hand's\n")
    mine(tmp_path / "again.json", *arguments)
    assert out.read_bytes() == before


def test_mined_file_can_be_used_as_labelled_text(flags: list[str], pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "mined.jsonl"
    rule = ["--range-max", "40", "--relative-margin", "-1", "--sampling", "random", "--seed", "3"]
    mine(
        tmp_path / "found.json",
        "--labelled",
        str(pairs),
        "--output",
        str(out),
        "--negatives",
        "2",
        *rule,
        *flags,
    )
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    workspace = Workspace(Path(flags[2]))
    examples = read_labelled(workspace, str(out), negatives=2)
    ids, passages = open_rows(workspace, examples), open_texts(workspace, examples.columns["passage"])
    assert [passages[row] for row in ids["negatives"]] == [row["negatives"] for row in rows]
    (tmp_path / "words.txt").write_text("\n".join(dict.fromkeys(lines(120, 2))))
    corpus = ["--corpus", str(tmp_path / "words.txt"), "--sentences", "0", "--set", "sentences.held_out=20"]
    budget = ["--distil-budget", "32", "--finetune-budget", "32", "--evaluations", "1"]
    values = ["--set", "distil_batch_size=16", "--set", "finetune_batch_size=4", "--set", "finetune_epochs=3"]
    labelled = ["--labelled", str(out), "--negatives", "2"]
    assert main(["train", "ibkd", *flags, *corpus, *budget, *values, *labelled]) == 0
    plans = [path.read_text() for path in (workspace.root / "stages").glob("*/manifest.json")]
    (plan,) = (plan for plan in plans if examples.columns["passage"].sha256 in plan)
    assert json.loads(plan)["plan"]["with"]["budget"] == 3 * len(rows)


def test_pairs_default_to_pydocs(
    flags: list[str], pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Experiment] = []

    def read(experiment: Experiment, workspace: Workspace, *, refresh: bool) -> SimpleNamespace:
        seen.append(experiment)
        return SimpleNamespace(pairs=read_labelled(workspace, str(pairs)))

    monkeypatch.setattr("stillhouse.experiments.preparation.read_pydocs", read)
    report = mine(tmp_path / "found.json", "--output", str(tmp_path / "mined.jsonl"), *flags)
    assert report["pairs"] > 20 and report["negatives"] == 1
    assert [(experiment.uses_pydocs, pairs_of(experiment).count) for experiment in seen] == [(True, None)]


def test_output_must_not_overwrite_the_mined_input(
    flags: list[str], pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = pairs.read_text()
    assert main(["mine", "--labelled", str(pairs), "--output", str(pairs), *flags]) == 2
    assert "another file than --labelled" in capsys.readouterr().err and pairs.read_text() == before


def test_a_rule_that_allows_no_negatives_writes_nothing(
    flags: list[str], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mined.jsonl"
    assert main(["mine", "--labelled", str(pairs), "--output", str(out), "--max-score", "-0.9", *flags]) == 2
    assert "hard negatives among" in capsys.readouterr().err and not out.exists()
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"query": "", "passage": "cat"}\n')
    assert main(["mine", "--labelled", str(empty), "--output", str(out), *flags]) == 2
    assert "at least one usable row" in capsys.readouterr().err and not out.exists()


def test_mining_rules_are_experiment_options(flags: list[str], pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(dict.fromkeys(lines(120, 2))))
    corpus = ["--corpus", str(tmp_path / "words.txt"), "--sentences", "0", "--set", "sentences.held_out=20"]
    (tmp_path / "plain.jsonl").write_text(pairs.read_text().replace(', "negative": "sun"', ""))
    labelled = ["--labelled", str(tmp_path / "plain.jsonl"), "--negatives", "2"]
    rule = ["--set", "pairs.mining.range_min=7", "--set", "pairs.mining.relative_margin=-1"]
    assert main(["embed", *flags, *corpus, *labelled, *rule]) == 0
    manifests = list((Path(flags[2]) / "examples").glob("mined-*/manifest.json"))
    rules = [
        json.loads(path.read_text())["plan"]["with"]["origin"]["with"]["mining"]["with"] for path in manifests
    ]
    assert any(rule["range_min"] == 7 and rule["relative_margin"] == {"float": "-1.0"} for rule in rules)
