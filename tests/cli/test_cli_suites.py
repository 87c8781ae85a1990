"""`evaluate --suite`: tiny files in the published layouts, nested figures, separate dev and test sets."""

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from small_experiment import write_fever

from stillhouse.cli.main import main
from stillhouse.evaluation.serving_cost import measure_speed
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.formats import write_format
from stillhouse.students.sizes import sizes
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Model

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
    (folder / "STS.gs.MSRpar.txt").write_text("0\n1\n2\n3\n4\n\n1\n2\n")
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
    report, root = tmp_path / "report.json", tmp_path / "runs"
    where = ["--data-root", str(data), "--root", str(root), "--json", str(report)]
    assert main(["evaluate", str(model), *where, *flags]) == 0
    read: dict[str, Any] = json.loads(report.read_text())
    return read


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure speeds roughly: only that they are measured is of interest here."""
    roughly = functools.partial(measure_speed, runs=1, calls=5)
    monkeypatch.setattr("stillhouse.evaluation.benchmarks.cost.measure_speed", roughly)


def test_dev_sets_without_an_experiment(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    suites = ["--suite", "sts,xsts,geometry,translation", "--figures", str(tmp_path / "drawn")]
    found = measured(tiny_model, data, tmp_path, *suites)
    assert (tmp_path / "drawn/covariance.png").is_file()
    about = found.pop("about")
    assert about["split"] == "dev" and about["opened_before"] == {}
    assert any("no dev files of SICK-R" in note for note in about["notes"]["sts"])
    assert list(found) == ["sts", "xsts", "geometry", "translation"]
    assert list(found["sts"]) == ["STS-B", "Avg of 1"], "SICK-R is missing"
    of = about["sets"]["sts"]["STS-B"]
    assert of["split"] == "dev" and of["items"] == {"all": 12} and len(of["data"]) == 16
    assert about["sets"]["geometry"]["STS-B"]["unit"] == "texts" and about["sets"]["xsts"]["STS-B"]["items"]
    assert about["sets"]["translation"]["laser.deu"]["items"]["mean"] == 9
    assert about["identity"] and f"identity {about['identity'][:16]}" in capsys.readouterr().out
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
    assert not list((tmp_path / "runs").glob("corpora/*")) and not (tmp_path / "runs/openings.jsonl").exists()


def test_geometry_of_texts_of_ones_own(tiny_model: Path, data: Path, tmp_path: Path) -> None:
    own, drawn = tmp_path / "own.txt", tmp_path / "drawn"
    own.write_text("".join(f"a text of mine, number {n}\n" for n in range(9)), encoding="utf-8")
    flags = ("--texts", str(own), "--count", "8", "--figures", str(drawn))
    found = measured(tiny_model, data, tmp_path, "--suite", "geometry", *flags)
    assert {path.name for path in drawn.iterdir()} == {"covariance.png", "covariance-own.png"}
    ours, mine = found["geometry"]["STS-B"], found["geometry"]["own"]
    assert ours.keys() - mine.keys() == {"alignment"} and mine["feature_correlation"] > 0
    assert found["about"]["sets"]["geometry"]["own"]["items"] == dict.fromkeys(mine, 8)


def test_final_opens_test_sets_and_records_it(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured(tiny_model, data, tmp_path, "--suite", "sts", "--final")["sts"]
    assert list(found) == ["STS12", "STS-B", "Avg of 2"], "of seven"
    assert "pairs without a gold score, left out: 1 of STS12" in capsys.readouterr().err
    assert set(found["STS12"]) == {"all", "mean", "wmean"}
    assert found["Avg of 2"]["all"] == pytest.approx((found["STS12"]["all"] + found["STS-B"]["all"]) / 2)
    (line,) = (tmp_path / "runs/openings.jsonl").read_text().splitlines()
    assert json.loads(line)["what"] == str(tiny_model)


def test_two_models_on_the_same_items(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, flags = str(tiny_model.parent / "bert"), ("--suite", "sts,geometry", "--final")
    alone = measured(tiny_model, data, tmp_path, *flags)
    found = measured(tiny_model, data, tmp_path, *flags, "--against", other, "--resamples", "100")
    against, again, first = found.pop("against"), found.pop("about"), alone.pop("about")
    assert again["opened_before"]["sts"] > first["opened_before"]["sts"] and first["split"] == "test"
    assert found == alone and against["model"] == other and list(against["suites"]) == list(alone)
    for suite, sets in against["suites"].items():
        for name, figures in sets.items():
            for kind, one in figures.items():
                assert one["model"] == pytest.approx(alone[suite][name][kind], abs=1e-9)
                assert one["difference"] == pytest.approx(one["model"] - one["other"])
                assert (one["p"] is None) == (suite == "geometry")
                assert one["p"] is None or (one["low"] <= one["high"] and one["p"] <= one["p_holm"] <= 1)
    assert against["suites"]["sts"]["STS12"]["all"]["items"] == 39, "one pair was never scored"
    printed = capsys.readouterr()
    report = printed.out
    runtime = "(sentence-transformers, torch)"
    assert f"sts: {tiny_model} {runtime} against {other} {runtime}" in report and "p (Holm)" in report
    assert "100 samples, seed 0" in printed.err
    last = (tmp_path / "runs/openings.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["what"] == f"{tiny_model} against {other}"


def test_results_go_alone_to_standard_output(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", str(tiny_model), "--suite", "sts", "--data-root", str(data)]
    command += ["--root", str(tmp_path / "runs")]
    assert main([*command, "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["sts"]["STS-B"] and "STS-B" in printed.err
    assert main(command) == 0
    shown = capsys.readouterr()
    assert shown.out and sorted((shown.out + shown.err).split()) == sorted(printed.err.split())


def test_cost_needs_no_data(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STILLHOUSE_DATA", raising=False)
    report = tmp_path / "report.json"
    flags = ["--suite", "cost", "--root", str(tmp_path / "runs"), "--json", str(report)]
    assert main(["evaluate", str(tiny_model), *flags]) == 0
    found = json.loads(report.read_text())["cost"]
    sizes = {"float32": 128, "float16": 64, "int8": 32, "binary": 4, "binary_rescored": 36}
    assert found["index_mb_per_million"] == sizes
    assert found["model"]["parameters"] > 0 and found["model"]["dimension"] == 32
    assert found["speed"]["latency_ms_max"] >= found["speed"]["latency_ms_p50"] > 0
    assert found["speed"]["sentences_per_second"] >= found["speed"]["sentences_per_second_1"] > 0
    assert found["speed"]["best_batch"] in (1, 8, 32, 64)
    assert found["model"]["megabytes_int8"] < 0.5 * found["model"]["megabytes"]


def test_onnx_without_the_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from stillhouse.core.errors import BadInput
    from stillhouse.evaluation.benchmark import Options
    from stillhouse.evaluation.benchmarks import load_suite

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r'pip install "stillhouse\[onnx\]"'):
        load_suite("cost").prepare("", Options(flags={"onnx": True}))


def test_translations_of_unequal_length(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tatoeba.deu-eng.deu").write_text("a\nb\nc\n")
    (tmp_path / "tatoeba.deu-eng.eng").write_text("a\nb\n")
    flags = ["--suite", "translation", "--data-root", str(tmp_path), "--root", str(tmp_path / "runs")]
    assert main(["evaluate", str(tiny_model), *flags]) == 2
    assert "must have the same number of lines" in capsys.readouterr().err


def test_retrieval_runs_reproduce_the_reported_figures(tiny_model: Path, tmp_path: Path) -> None:
    from stillhouse.evaluation.trec_runs import read_run, run_figures

    for name in ("one", "two"):
        folder, draw = tmp_path / "beir" / name, np.random.default_rng(1)
        (folder / "qrels").mkdir(parents=True)
        for file, letter, rows in (("corpus", "d", 20), ("queries", "q", 5)):
            lines = [json.dumps({"_id": f"{letter}{at}", "text": sentence(draw)}) for at in range(rows)]
            (folder / f"{file}.jsonl").write_text("\n".join(lines))
        qrels = "".join(f"q{at}\td{3 * at}\t1\n" for at in range(5))
        (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    flags = ["--suite", "retrieval", "--final", "--run", str(tmp_path / "run.txt")]
    found = measured(tiny_model, tmp_path, tmp_path, *flags)
    assert [each["roles"]["judged"] for each in found["data"]["sources"]] == ["test.tsv", "test.tsv"]
    found = found["retrieval"]
    assert list(found) == ["one", "two"] and found["one"]["recall@100"] == 1
    run = read_run(tmp_path / "run.two.txt")
    assert run_figures(run, {f"q{at}": {f"d{3 * at}": 1} for at in range(5)}) == found["two"]
    assert len((tmp_path / "runs/openings.jsonl").read_text().splitlines()) == 1


def test_transfer_opens_its_test_sets_only_with_final(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, draw = tmp_path / "transfer/SST/binary", np.random.default_rng(2)
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = "".join(f"{sentence(draw)} \t{at % 2}\n" for at in range(12))
        (folder / f"sentiment-{split}").write_text(rows)
    dev = measured(tiny_model, tmp_path, tmp_path, "--suite", "transfer", "--fast")["transfer"]
    shown = capsys.readouterr().err
    assert "note: no files of MR, CR, SUBJ, MPQA, TREC, MRPC: expected in transfer" in shown
    assert "note: 5 folds" in shown
    assert list(dev) == ["SST-2"] and list(dev["SST-2"]) == ["dev_accuracy"]
    final = measured(tiny_model, tmp_path, tmp_path, "--suite", "transfer", "--final")["transfer"]
    assert final["SST-2"]["dev_accuracy"] == dev["SST-2"]["dev_accuracy"]
    assert final["Avg of 1"]["accuracy"] == final["SST-2"]["accuracy"]


def test_a_written_run_can_be_scored_without_a_model(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw, folder = np.random.default_rng(0), tmp_path / "data/retrieval/toy"
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", 30), ("queries", 5)):
        lines = [json.dumps({"_id": f"{name}{at}", "text": sentence(draw)}) for at in range(rows)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    lines = ["query-id\tcorpus-id\tscore", *(f"queries{at}\tcorpus{at}\t1" for at in range(5))]
    (folder / "qrels/train.tsv").write_text("\n".join(lines))
    run = tmp_path / "run.txt"
    root = ["--data-root", str(tmp_path / "data"), "--root", str(tmp_path / "runs")]
    assert main(["evaluate", str(tiny_model), "--suite", "retrieval", *root]) == 2
    assert "but toy has no dev judgements (it has: train). Name one" in capsys.readouterr().err
    flags = ["--suite", "retrieval", "--split", "train", "--run", str(run), "--index", "flat"]
    whole = measured(tiny_model, tmp_path / "data", tmp_path, *flags)
    found, about = whole["retrieval"], whole["about"]["sets"]["retrieval"]
    assert about["toy"]["split"] == "train" and about["toy"]["items"]["map"] == 5
    assert about["toy flat"]["data"] == about["toy"]["data"]
    assert "toy (train) " in capsys.readouterr().out
    assert list(found) == ["toy", "toy exact", "toy flat"]
    assert found["toy flat"]["recall_of_exact@10"] == 1 and found["toy exact"]["index_mb"] > 0
    assert not list((tmp_path / "runs/vectors").glob("*/"))
    report, data = tmp_path / "again.json", str(tmp_path / "data")
    flags = ["--suite", "retrieval", "--split", "train", "--only", "toy", "--from-run", str(run)]
    flags += ["--data-root", data, "--json", str(report)]
    assert main(["evaluate", "--root", str(tmp_path / "runs"), *flags]) == 0
    again = json.loads(report.read_text())
    assert again["retrieval"] == {"toy": found["toy"]}
    assert f"toy: the run {run}, sha256 " in again["about"]["notes"]["retrieval"][0]
    run.write_text(run.read_text() + "queries0 Q0 corpus0 99 -3 t\n")
    assert main(["evaluate", "--root", str(tmp_path / "runs"), *flags]) == 2
    assert "run.txt, line 151: 'queries0' must have 'corpus0' once" in capsys.readouterr().err


def test_suite_flags_require_a_suite(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--run", str(tmp_path / "run.txt"), "--root", str(tmp_path / "runs")]
    assert main(["evaluate", str(tiny_model), *flags]) == 2
    assert "`--run goes with --suite retrieval` must hold" in capsys.readouterr().err


def test_what_is_deployed_is_measured_in_its_own_runtime(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    student = TransformerStudent(Model("tiny", path=str(tiny_model)), layers=(0,))
    encoder = StudentEncoder(student, student.tokenizer.path, 32)
    texts = ["the cat", "a river and the moon"]
    for form in ("onnx-int8", "sentence-transformers"):
        write_format(form, encoder, tmp_path / form, texts)
    flags = ["--suite", "sts,cost", "--against", str(tmp_path / "sentence-transformers")]
    found = measured(tmp_path / "onnx-int8", data, tmp_path, *flags)
    printed = capsys.readouterr().out
    assert f"{tmp_path / 'onnx-int8'} (onnx-int8, onnxruntime) against" in printed
    assert f"{tmp_path / 'sentence-transformers'} (sentence-transformers, torch)" in printed
    assert "(onnx-int8, onnxruntime)" in found["against"]["titles"][0]
    other = found["against"]["suites"]["cost"]["model"]
    assert found["cost"]["model"]["parameters"] == other["parameters"]["other"]
    (graph,) = (tmp_path / "onnx-int8" / "onnx").iterdir()
    assert found["cost"]["model"]["megabytes"] == graph.stat().st_size / 1e6
    assert other["megabytes"]["other"] == sizes(student)["megabytes"]
    assert other["megabytes_on_disk"]["model"] > graph.stat().st_size / 1e6
    assert found["cost"]["speed"]["sentences_per_second"] > 0
    sts = found["against"]["suites"]["sts"]["STS-B"]["all"]
    assert sts["items"] == 12 and sts["model"] != sts["other"]
    flags = ["--root", str(tmp_path / "runs"), "--suite", "cost", "--onnx"]
    assert main(["evaluate", str(tmp_path / "onnx-int8"), *flags]) == 2
    assert "not with an ONNX export" in capsys.readouterr().err


class Broken:
    """An encoder that returns zeros, and NaN for one text."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def encode(self, texts: list[str]) -> Any:
        vectors = np.zeros((len(texts), 3), np.float32)
        vectors[[text == self.text for text in texts]] = np.nan
        return vectors

    def found(self, *_: Any, **head: str | bool | None) -> Any:
        """Stand for what `find_model` finds under any name."""
        parts = {"megabytes": lambda: None, "open": lambda device: self, "identity": lambda: "0"}
        return SimpleNamespace(title="broken", **parts)


def test_nan_vectors_yield_no_figures(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = (data / "sts/senteval/STSBenchmark/sts-dev.csv").read_text().split("\n")[0].split("\t")
    monkeypatch.setattr("stillhouse.cli.published_suites.find_model", Broken(row[5]).found)
    flags = ["--suite", "sts", "--data-root", str(data), "--root", str(tmp_path / "runs")]
    assert main(["evaluate", "broken", *flags]) == 2
    report = capsys.readouterr().err
    assert "contain NaN or infinity" in report and repr(row[5][:60]) in report


def test_an_undefined_figure_is_null_and_reported(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillhouse.cli.published_suites.find_model", Broken().found)
    assert measured(Path("zeros"), data, tmp_path, "--suite", "sts")["sts"]["STS-B"] == {"all": None}
    assert "NaN" not in (tmp_path / "report.json").read_text()
    assert "null in --json: all of STS-B, all of Avg of 1" in capsys.readouterr().err


def test_fever_ranks_the_candidates_of_its_claims(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    from stillhouse.corpora.published.fever import read_fever

    write_fever(tmp_path)
    found = measured(tiny_model, tmp_path, tmp_path, "--suite", "fever", "--candidates", "4")["fever"]
    assert found["TF-IDF"]["R(1)"] == 1 and found["TF-IDF"]["covered@4"] == 1
    data = read_fever(tmp_path / "fever/train.jsonl", tmp_path / "fever/wiki-pages")
    model, first, micro, macro = SentenceTransformer(str(tiny_model), device="cpu"), [], [], []
    documents = model.encode(data.documents)
    for claim in data.splits["dev"]:
        words = set(claim.text.split())
        near = sorted(range(12), key=lambda row: (not words & set(data.documents[row].split()), row))[:4]
        ranked = sorted(near, key=lambda row: -float(model.encode([claim.text])[0] @ documents[row]))
        first.append(ranked[0] in claim.gold)
        hits = len(set(ranked[:3]) & set(claim.gold))
        micro.append((hits, len(claim.gold)))
        macro.append(hits / len(claim.gold))
    assert found["model"]["R(1)"] == found["model"]["accuracy@1"] == pytest.approx(np.mean(first))
    hits, relevant = (sum(side) for side in zip(*micro, strict=True))
    assert found["model"]["R_micro(3)"] == pytest.approx(hits / relevant)
    assert found["model"]["R_macro(3)"] == found["model"]["recall@3"] == pytest.approx(np.mean(macro))
    assert list(found["model"])[-3:] == ["mrr@4", "ndcg@4", "covered@4"]
    assert "note: dev split by claim," in capsys.readouterr().err
    compared = ("--candidates", "4", "--against", str(tiny_model.parent / "bert"), "--resamples", "100")
    against = measured(tiny_model, tmp_path, tmp_path, "--suite", "fever", *compared)["against"]["suites"]
    micro_3 = against["fever"]["model"]["R_micro(3)"]
    assert micro_3["items"] == len(data.splits["dev"]) and micro_3["low"] <= micro_3["high"]
    assert against["fever"]["TF-IDF"]["DCG"]["difference"] == 0
    assert against["fever"]["model"]["covered@4"]["p"] is None, "coverage is not computed per claim"
    final = ["--suite", "fever", "--final"]
    assert measured(tiny_model, tmp_path, tmp_path, *final)["fever"]["TF-IDF"]["covered@10"] == 1
    assert (tmp_path / "runs/openings.jsonl").is_file()


def test_glue_reads_its_folders_and_names_missing_ones(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(3)
    for name in ("glue/MNLI", "glue/SST-2", "transfer/SST/binary", "transfer/MRPC"):
        (tmp_path / name).mkdir(parents=True)
    texts = [sentence(draw) + f" {at}" for at in range(60)]
    head, kinds = "sentence1\tsentence2\tgold_label\n", ("entailment", "neutral", "contradiction")
    for split, rows in (
        ("train", range(30)),
        ("dev_matched", range(30, 45)),
        ("dev_mismatched", range(25, 40)),
    ):
        lines = "".join(f"{texts[at]}\t{texts[at - 1]}\t{kinds[at % 3]}\n" for at in rows)
        (tmp_path / f"glue/MNLI/{split}.tsv").write_text(head + lines)
    lines = "".join(f"{text}\t{at % 2}\n" for at, text in enumerate(texts))
    (tmp_path / "glue/SST-2/dev.tsv").write_text("sentence\tlabel\n" + lines)
    for split in ("train", "dev"):
        (tmp_path / f"transfer/SST/binary/sentiment-{split}").write_text(lines)
    pairs = "".join(f"{at % 2}\t1\t2\t{texts[at]}\t{texts[at - at % 2]}\n" for at in range(40))
    (tmp_path / "transfer/MRPC/msr_paraphrase_train.txt").write_text(
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + pairs
    )
    found = measured(tiny_model, tmp_path, tmp_path, "--suite", "glue")["glue"]
    assert {name: list(each) for name, each in found.items()} == {
        "SST-2": ["tuned_accuracy", "tuned_f1"],
        "MNLI-m": ["tuned_accuracy"],
        "MNLI-mm": ["tuned_accuracy"],
        "MRPC": ["tuned_accuracy", "tuned_f1", "cosine_accuracy", "cosine_f1"],
    }
    shown = capsys.readouterr().err
    assert "note: no files of QQP: expected in glue" in shown
    assert "note: SST-2: 60 rows of train that are also measured were left out" in shown
    assert "note: MNLI-mm: 5 rows of train that are also measured were left out" in shown
    assert "note: MRPC: no dev file" in shown and "note: MRPC: fitted on one half" in shown
    compared = ("--against", str(tiny_model.parent / "bert"), "--resamples", "100")
    against = measured(tiny_model, tmp_path, tmp_path, "--suite", "glue", *compared)["against"]["suites"]
    for kind, one in against["glue"]["MRPC"].items():
        assert one["items"] == 40 and one["p"] <= 1 and one["model"] == found["MRPC"][kind]
