"""`evaluate --suite`: tiny files in the published layouts, nested figures, dev and test kept apart."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stillhouse.cli import main

WORDS = "cat dog sat mat house river water sun moon red green blue fast slow array list text word".split()
STS12 = ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")


def sentence(draw: np.random.Generator) -> str:
    return " ".join(draw.choice(WORDS, draw.integers(2, 7)))


def write_stsb(folder: Path, split: str, draw: np.random.Generator) -> None:
    rows = [f"g\tf\ty\t{at}\t{at % 6}.0\t{sentence(draw)}\t{sentence(draw)}" for at in range(12)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"sts-{split}.csv").write_text("\n".join(rows))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for split in ("dev", "test"):
        write_stsb(root / "sts/senteval/STSBenchmark", split, draw)
    folder = root / "sts/senteval/STS12-en-test"
    folder.mkdir()
    for part in STS12:
        (folder / f"STS.input.{part}.txt").write_text(
            "".join(f"{sentence(draw)}\t{sentence(draw)}\n" for _ in range(8))
        )
        (folder / f"STS.gs.{part}.txt").write_text("".join(f"{at % 5}\n" for at in range(8)))
    (root / "stsb_multi_mt").mkdir()
    for language in ("en", "de"):
        lines = [f"{sentence(draw)},{sentence(draw)},{at % 6}.0" for at in range(10)]
        (root / f"stsb_multi_mt/stsb-{language}-dev.csv").write_text("\n".join(lines))
    (root / "parallel/laser_tatoeba1000").mkdir(parents=True)
    lines = [sentence(draw) + f" {at}" for at in range(9)]
    for language in ("deu", "eng"):
        (root / f"parallel/laser_tatoeba1000/tatoeba.deu-eng.{language}").write_text("\n".join(lines) + "\n")
    return root


def measured(model: Path, data: Path, tmp_path: Path, *flags: str) -> dict[str, Any]:
    told, root = tmp_path / "told.json", tmp_path / "runs"
    where = ["--data-root", str(data), "--root", str(root), "--json", str(told)]
    assert main(["evaluate", str(model), *where, *flags]) == 0
    read: dict[str, Any] = json.loads(told.read_text())
    return read


def test_dev_sets_without_an_experiment(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    found = measured(tiny_model, data, tmp_path, "--suite", "sts,xsts,geometry,translation")
    assert list(found) == ["sts", "xsts", "geometry", "translation"]
    assert list(found["sts"]) == ["STS-B", "Avg"]
    rows = [
        row.split("\t") for row in (data / "sts/senteval/STSBenchmark/sts-dev.csv").read_text().split("\n")
    ]
    model = SentenceTransformer(str(tiny_model), device="cpu")
    first, second = model.encode([row[5] for row in rows]), model.encode([row[6] for row in rows])
    rho = stats.spearmanr((first * second).sum(1), [float(row[4]) for row in rows]).statistic
    assert found["sts"]["STS-B"]["all"] == pytest.approx(100 * rho, abs=1e-6)
    assert list(found["xsts"]["STS-B"]) == ["en-de"]
    above = [at for at, row in enumerate(rows) if float(row[4]) > 4]
    aligned = ((first[above] - second[above]) ** 2).sum(1).mean()
    assert found["geometry"]["STS-B"]["alignment"] == pytest.approx(aligned, rel=1e-5)
    assert found["translation"]["laser.deu"] == {"to_eng": 100.0, "from_eng": 100.0, "mean": 100.0}
    shown = capsys.readouterr().out
    assert "note: no dev files of SICK-R: they would lie in sts/senteval" in shown
    assert not list((tmp_path / "runs").glob("corpora/*")) and not (tmp_path / "runs/openings.jsonl").exists()


def test_test_sets_are_opened_by_final_and_recorded(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    found = measured(tiny_model, data, tmp_path, "--suite", "sts", "--final")["sts"]
    assert list(found) == ["STS12", "STS-B", "Avg"]
    assert set(found["STS12"]) == {"all", "mean", "wmean"}
    assert found["Avg"]["all"] == pytest.approx((found["STS12"]["all"] + found["STS-B"]["all"]) / 2)
    (line,) = (tmp_path / "runs/openings.jsonl").read_text().splitlines()
    assert json.loads(line)["what"] == str(tiny_model)


def test_cost_needs_no_data(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STILLHOUSE_DATA", raising=False)
    told = tmp_path / "told.json"
    flags = ["--suite", "cost", "--root", str(tmp_path / "runs"), "--json", str(told)]
    assert main(["evaluate", str(tiny_model), *flags]) == 0
    found = json.loads(told.read_text())["cost"]
    assert found["index_mb_per_million"] == {"float32": 128, "float16": 64, "int8": 32, "binary": 4}
    assert found["model"]["parameters"] > 0 and found["model"]["latency_ms_p99"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--suite", "geometri"], "Did you mean geometry"),
        (["--suite", "sts", "--run", "run.txt"], "--run goes with --suite retrieval"),
        (["--suite", ","], "--suite names some of sts"),
        (["--suite", "sts", "--index", "hnsw"], "--index goes with --suite retrieval"),
        (["--suite", "retrieval", "--index", "hnsw:m=0"], "2 <= m <= 512"),
        (["--suite", "retrieval", "--search-shards", "0"], "search_shards >= 1"),
        (["--suite", "retrieval", "--from-run", "run.txt"], "--from-run goes without a model"),
        (["--suite", "retrieval", "--from-run", "r", "--run", "s"], "--run and --from-run are not given"),
        (["--suite", "sts", "--data-root", "./nowhere"], "Give --data-root DIR"),
        (["--suite", "sts", "--data-root", "."], "sts/senteval"),
        (["--suite", "xsts", "--data-root", "."], "stsb_multi_mt"),
        (["--suite", "translation", "--data-root", "."], "parallel/laser_tatoeba1000"),
        (["--suite", "geometry", "--data-root", "."], "STSB"),
        (["--suite", "retrieval", "--data-root", "."], "corpus.jsonl, queries.jsonl, qrels"),
        (["--suite", "transfer", "--data-root", "."], "MR, CR, SUBJ, MPQA"),
    ],
)
def test_what_is_missing_is_named(
    flags: list[str],
    message: str,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(tiny_model), *flags, "--root", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr().err
    assert message in told and len(told.splitlines()) == 1


def test_translations_of_unequal_length(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tatoeba.deu-eng.deu").write_text("a\nb\nc\n")
    (tmp_path / "tatoeba.deu-eng.eng").write_text("a\nb\n")
    flags = ["--suite", "translation", "--data-root", str(tmp_path), "--root", str(tmp_path / "runs")]
    assert main(["evaluate", str(tiny_model), *flags]) == 2
    assert "a translation stands in every line" in capsys.readouterr().err


def test_retrieval_writes_runs_that_give_the_figures(tiny_model: Path, tmp_path: Path) -> None:
    from stillhouse.evaluation.judged_search import read_run, run_figures

    for name in ("one", "two"):
        folder, draw = tmp_path / "beir" / name, np.random.default_rng(1)
        (folder / "qrels").mkdir(parents=True)
        for file, letter, rows in (("corpus", "d", 20), ("queries", "q", 5)):
            lines = [json.dumps({"_id": f"{letter}{at}", "text": sentence(draw)}) for at in range(rows)]
            (folder / f"{file}.jsonl").write_text("\n".join(lines))
        qrels = "".join(f"q{at}\td{3 * at}\t1\n" for at in range(5))
        (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    flags = ["--suite", "retrieval", "--final", "--run", str(tmp_path / "run.txt")]
    found = measured(tiny_model, tmp_path, tmp_path, *flags)["retrieval"]
    assert list(found) == ["one", "two"] and found["one"]["recall@100"] == 1
    run = read_run(tmp_path / "run.two.txt")
    assert run_figures(run, {f"q{at}": {f"d{3 * at}": 1} for at in range(5)}) == found["two"]
    assert len((tmp_path / "runs/openings.jsonl").read_text().splitlines()) == 1


def test_transfer_keeps_its_test_sets_for_final(tiny_model: Path, tmp_path: Path) -> None:
    folder, draw = tmp_path / "transfer/SST/binary", np.random.default_rng(2)
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = "".join(f"{sentence(draw)} \t{at % 2}\n" for at in range(12))
        (folder / f"sentiment-{split}").write_text(rows)
    dev = measured(tiny_model, tmp_path, tmp_path, "--suite", "transfer")["transfer"]
    assert list(dev) == ["SST-2"] and list(dev["SST-2"]) == ["dev_accuracy"]
    final = measured(tiny_model, tmp_path, tmp_path, "--suite", "transfer", "--final")["transfer"]
    assert final["SST-2"]["dev_accuracy"] == dev["SST-2"]["dev_accuracy"]
    assert final["Avg"]["accuracy"] == final["SST-2"]["accuracy"]


def test_a_run_is_written_by_a_model_and_measured_without_one(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("faiss")
    draw, folder = np.random.default_rng(0), tmp_path / "data/retrieval/toy"
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", 30), ("queries", 5)):
        lines = [json.dumps({"_id": f"{name}{at}", "text": sentence(draw)}) for at in range(rows)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    lines = ["query-id\tcorpus-id\tscore", *(f"queries{at}\tcorpus{at}\t1" for at in range(5))]
    (folder / "qrels/dev.tsv").write_text("\n".join(lines))
    run = tmp_path / "run.txt"
    flags = ["--suite", "retrieval", "--run", str(run), "--index", "flat"]
    found = measured(tiny_model, tmp_path / "data", tmp_path, *flags)["retrieval"]
    assert list(found) == ["toy", "toy exact", "toy flat"]
    assert found["toy flat"]["recall_of_exact@10"] == 1 and found["toy exact"]["index_mb"] > 0
    assert not list((tmp_path / "runs/vectors").iterdir())
    told, data = tmp_path / "again.json", str(tmp_path / "data")
    flags = ["--suite", "retrieval", "--from-run", str(run), "--data-root", data, "--json", str(told)]
    assert main(["evaluate", "--root", str(tmp_path / "runs"), *flags]) == 0
    assert json.loads(told.read_text())["retrieval"] == {"toy": found["toy"]}
    run.write_text(run.read_text() + "queries0 Q0 corpus0 99 -3 t\n")
    assert main(["evaluate", "--root", str(tmp_path / "runs"), *flags]) == 2
    assert "run.txt, line 151: 'queries0' must have 'corpus0' once" in capsys.readouterr().err
