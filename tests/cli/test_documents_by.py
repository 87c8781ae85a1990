"""Asymmetric search from the command line: the teacher embeds the documents, the student the queries."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row
from sentence_transformers import SentenceTransformer
from small_experiment import sentences, write_fever

import stillhouse
from stillhouse.cli.main import main
from stillhouse.corpora.published.fever import read_fever
from stillhouse.evaluation.metrics import judge, ndcg, recall, reciprocal_rank

PASSAGES = sentences(60, 3)
SHORTENED = [" ".join(text.split()[1:]) for text in PASSAGES[:24]]
"""Queries: each passage without its first word."""
Run = Callable[..., dict[str, Any]]


def write_beir(folder: Path) -> Path:
    """60 passages; half of the queries are for dev and half for test."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{at}", "title": "", "text": text} for at, text in enumerate(PASSAGES)]
    asked = [{"_id": f"q{at}", "text": text} for at, text in enumerate(SHORTENED)]
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    for split, queries in (("dev", range(12)), ("test", range(12, 24))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{at}\td{at}\t1" for at in queries)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asymmetric")


@pytest.fixture(scope="module")
def flags(root: Path, tiny_model: Path) -> list[str]:
    """One workspace, corpus, collection and teacher for all commands."""
    (root / "words.txt").write_text("\n".join(sentences(160, 9)))
    write_beir(root / "data" / "retrieval" / "own")
    return [
        *("--root", str(root / "runs"), "--corpus", str(root / "words.txt"), "--teacher", str(tiny_model)),
        *("--dev-collection", str(root / "data/retrieval/own"), "--sentences", "0", "--max-length", "16"),
        *("--set", "sentences.held_out=20", "--compute", "float32"),
    ]


@pytest.fixture(scope="module")
def train(root: Path, flags: list[str]) -> Run:
    """Train two layers of the teacher, with eight evaluations, and return the stage's manifest."""

    def run(method: str, *more: str) -> dict[str, Any]:
        report = root / "report.json"
        budget = ["--distil-budget", "512", "--evaluations", "8", "--layers", "[0,1]"]
        given = ["--set", "batch_size=16", "--set", "learning_rate=0.003", *more]
        assert main(["train", method, "--local", "--json", str(report), *flags, *budget, *given]) == 0
        folder = Path(json.loads(report.read_text())["folder"])
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        return manifest | {"folder": folder}

    return run


@pytest.fixture(scope="module")
def stage(train: Run) -> dict[str, Any]:
    """A student that was selected by asymmetric search."""
    return train("mse", "--select", "asymmetric")


def best_step(manifest: dict[str, Any], figure: str) -> int:
    """The step at which a figure was highest, the first one of several."""
    best = max(manifest["evaluations"], key=lambda point: point["metrics"][figure])
    return int(best["step"])


def evaluated(model: str | Path, root: Path, *arguments: str) -> dict[str, Any]:
    report = root / "figures.json"
    where = ["--root", str(root / "runs"), "--json", str(report)]
    assert main(["evaluate", str(model), *arguments, *where]) == 0
    read: dict[str, Any] = json.loads(report.read_text())
    return read


def test_the_asymmetric_figure_selects_where_the_two_disagree(stage: dict[str, Any], train: Run) -> None:
    """Both figures are logged in both runs; the one that is named selects the checkpoint."""
    symmetric, asymmetric = "collection_cosine_ndcg@10", "collection_asymmetric_cosine_ndcg@10"
    assert all({symmetric, asymmetric} <= set(point["metrics"]) for point in stage["evaluations"])
    assert stage["chosen_step"] == best_step(stage, asymmetric) != best_step(stage, symmetric)
    alone = train("mse")
    assert alone["chosen_step"] == best_step(alone, symmetric) == best_step(stage, symmetric)
    assert not any(asymmetric in point["metrics"] for point in alone["evaluations"])
    curves = [[point["metrics"][symmetric] for point in run["evaluations"]] for run in (stage, alone)]
    assert curves[0] == curves[1], "the selection changes no step"


def reference(student: Path, teacher: Path, split: str) -> dict[str, float]:
    """Figures from stock sentence-transformers, exact products and a full sort."""
    queries = SHORTENED[:12] if split == "dev" else SHORTENED[12:]
    first = SentenceTransformer(str(student), device="cpu").encode(queries, normalize_embeddings=True)
    second = SentenceTransformer(str(teacher), device="cpu").encode(PASSAGES, normalize_embeddings=True)
    order = np.argsort(-(first @ second.T), axis=1, kind="stable")
    offset = 0 if split == "dev" else 12
    qrels = np.array([[at, at + offset, 1] for at in range(12)])
    judged = judge(order, np.arange(12), qrels)
    values = {"mrr@10": reciprocal_rank(judged, 10), "ndcg@10": ndcg(judged, 10)}
    values |= {f"recall@{depth}": recall(judged, depth) for depth in (1, 10, 100)}
    return {name: float(each.mean()) for name, each in values.items()}


@pytest.fixture(scope="module")
def exported(root: Path, stage: dict[str, Any]) -> Path:
    assert main(["export", str(stage["folder"]), str(root / "student"), "--root", str(root / "runs")]) == 0
    return root / "student"


def test_a_suite_is_measured_with_the_documents_of_the_teacher(
    root: Path,
    stage: dict[str, Any],
    exported: Path,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ["--suite", "retrieval", "--data-root", str(root / "data")]
    plain = evaluated(stage["folder"], root, *data)
    capsys.readouterr()
    run = root / "run.txt"
    found = evaluated(stage["folder"], root, *data, "--documents-by", "teacher", "--run", str(run))
    printed = capsys.readouterr()
    by = found.pop("documents_by")
    assert found == plain, "the student's own figures are beside the others, and do not change"
    again = evaluated("", root, *data, "--from-run", str(run))
    assert again["retrieval"]["own"]["ndcg@10"] == pytest.approx(plain["retrieval"]["own"]["ndcg@10"])
    figures = by["suites"]["retrieval"]["own"]
    teacher = evaluated(tiny_model, root, *data)["retrieval"]["own"]
    expected = reference(exported, tiny_model, "dev")
    assert set(figures) == set(plain["retrieval"]["own"])
    for name in ("ndcg@10", "mrr@10", "recall@100"):
        one = figures[name]
        assert one["teacher"] == pytest.approx(teacher[name], abs=1e-9)
        assert one["symmetric"] == plain["retrieval"]["own"][name]
        assert one["asymmetric"] == pytest.approx(expected[name], abs=1e-6), name
        assert one["asymmetric_share"] == pytest.approx(one["asymmetric"] / one["teacher"])
    assert by["documents_encoded"] == 60, "for the teacher's own figures and the asymmetric ones"
    assert "60 encoded, each once; now removed (--keep-vectors" in printed.err
    assert "kept  asymmetric" in printed.out and not list((root / "runs").glob("vectors/documents-*/"))


def test_a_teacher_that_is_also_compared_with_is_measured_once(
    root: Path, stage: dict[str, Any], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--suite", "retrieval", "--data-root", str(root / "data"), "--against"]
    apart = evaluated(stage["folder"], root, *data, str(tiny_model))["against"]["suites"]
    capsys.readouterr()
    found = evaluated(stage["folder"], root, *data, str(tiny_model), "--documents-by", "teacher")
    shown = capsys.readouterr().err
    assert shown.count(f"retrieval: measuring {tiny_model} (") == 1
    assert f"retrieval: measuring {stage['folder']} (stage, torch) among its documents" in shown
    assert found["against"]["suites"] == apart
    other = ["--documents-by", str(tiny_model), "--against", str(stage["folder"])]
    swapped = evaluated(tiny_model, root, *data[:-1], *other)["against"]["suites"]["retrieval"]["own"]
    assert swapped["ndcg@10"]["other"] == apart["retrieval"]["own"]["ndcg@10"]["model"], "not the teacher's"


def test_kept_vectors_are_read_by_the_next_command(
    root: Path, stage: dict[str, Any], exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for another model of the same space."""
    data = ["--suite", "retrieval", "--data-root", str(root / "data"), "--keep-vectors"]
    first = evaluated(stage["folder"], root, *data, "--documents-by", "teacher")
    name = first["documents_by"]["model"]
    second = evaluated(exported, root, *data, "--documents-by", name)
    assert first["documents_by"]["documents_encoded"] == 60
    assert second["documents_by"]["documents_encoded"] == 0
    assert "none encoded: their vectors were kept" in capsys.readouterr().err
    for figure, one in second["documents_by"]["suites"]["retrieval"]["own"].items():
        other = first["documents_by"]["suites"]["retrieval"]["own"][figure]
        assert one == pytest.approx(other, abs=1e-6), figure
    shutil.rmtree(root / "runs" / "vectors")


@pytest.mark.parametrize("split", ["dev", "test"])
def test_an_experiments_own_queries_are_measured_both_ways(
    split: str,
    root: Path,
    flags: list[str],
    stage: dict[str, Any],
    exported: Path,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    final = ["--final"] if split == "test" else []
    openings = root / "runs" / "openings.jsonl"
    before = len(openings.read_text().splitlines()) if openings.exists() else 0
    own = [flag for flag in flags if flag not in ("--root", str(root / "runs"))]
    found = evaluated(stage["folder"], root, *own, *final, "--documents-by", "teacher")
    said = capsys.readouterr().err
    figures = found["documents_by"]["suites"][split][split]
    teacher = evaluated(tiny_model, root, *own, *final)["metrics"]
    expected = reference(exported, tiny_model, split)
    for name in ("ndcg@10", "mrr@10"):
        one = figures[f"collection_cosine_{name}"]
        # Stored vectors have half precision, which may exchange passages that are nearly equally near.
        assert one["teacher"] == pytest.approx(teacher[f"collection_cosine_{name}"], abs=0.02)
        assert one["symmetric"] == found["metrics"][f"collection_cosine_{name}"]
        assert one["asymmetric"] == found["metrics"][f"collection_asymmetric_cosine_{name}"]
        assert one["asymmetric"] == pytest.approx(expected[name], abs=0.02)
    assert "documents of own-passages: found in the workspace" in said
    if final:
        lines = [json.loads(line) for line in openings.read_text().splitlines()[before:]]
        assert len({line["suite"] for line in lines}) == 1, "the same test set, whoever embeds the documents"


@pytest.mark.parametrize("final", [False, True])
def test_the_call_gives_what_the_command_gives(
    final: bool, root: Path, flags: list[str], stage: dict[str, Any], tiny_model: Path
) -> None:
    """Figures of the model, of its queries among the teacher's documents, and of the teacher alone."""
    experiment = stillhouse.Experiment(
        teacher=stillhouse.TeacherChoice(str(tiny_model)),
        data=(
            stillhouse.Sentences(str(root / "words.txt"), count=0, held_out=20),
            stillhouse.SearchCollection(path=str(root / "data/retrieval/own")),
        ),
        max_length=16,
        compute="float32",
    )
    own = [flag for flag in flags if flag not in ("--root", str(root / "runs"))]
    command = evaluated(
        stage["folder"], root, *own, *(["--final"] if final else []), "--documents-by", "teacher"
    )
    given: dict[str, Any] = {"final": final, "root": root / "runs", "device": "cpu"}
    called = stillhouse.evaluate(stage["folder"], experiment, documents_by=tiny_model, **given)
    beside = next(iter(command["documents_by"]["suites"].values()))
    (figures,) = beside.values()
    theirs = {f"teacher_{name}": one["teacher"] for name, one in figures.items()}
    assert called == command["metrics"] | theirs and theirs
    assert "collection_asymmetric_cosine_ndcg@10" in called
    alone = stillhouse.evaluate(stage["folder"], experiment, **given)
    assert alone.items() < called.items() and not any("asymmetric" in name for name in alone)


def test_the_candidates_of_claims_may_be_the_teachers(
    root: Path, stage: dict[str, Any], exported: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """FEVER's claims by the student, their candidate documents by the teacher, each document once."""
    write_fever(tmp_path)
    data = ["--suite", "fever", "--data-root", str(tmp_path), "--candidates", "4"]
    found = evaluated(stage["folder"], root, *data, "--documents-by", "teacher")
    figures = found["documents_by"]["suites"]["fever"]["model"]
    read = read_fever(tmp_path / "fever/train.jsonl", tmp_path / "fever/wiki-pages")
    models = {
        name: SentenceTransformer(str(folder), device="cpu")
        for name, folder in (("teacher", tiny_model), ("symmetric", exported))
    }
    documents = models["teacher"].encode(read.documents, normalize_embeddings=True)
    found_at: dict[str, list[float]] = {name: [] for name in ("teacher", "asymmetric")}
    encoded = set()
    for claim in read.splits["dev"]:
        words = set(claim.text.split())
        near = sorted(range(12), key=lambda row: (not words & set(read.documents[row].split()), row))[:4]
        for name, by in (("teacher", "teacher"), ("asymmetric", "symmetric")):
            query = models[by].encode([claim.text], normalize_embeddings=True)[0]
            ranked = sorted(near, key=lambda row: -float(query @ documents[row]))
            found_at[name].append(1 / next(at for at, row in enumerate(ranked, 1) if row in claim.gold))
        encoded |= set(near)
    for name, values in found_at.items():
        assert figures["mrr@4"][name] == pytest.approx(np.mean(values)), name
    assert figures["mrr@4"]["teacher"] != figures["mrr@4"]["asymmetric"]
    assert figures["mrr@4"]["symmetric"] == found["fever"]["model"]["mrr@4"]
    assert found["documents_by"]["documents_encoded"] == len(encoded)
    assert set(found["documents_by"]["suites"]["fever"]) == {"model"}, "TF-IDF has no documents of a model"


@pytest.mark.skipif(importlib.util.find_spec("mteb") is None, reason="the extra mteb is not installed")
def test_a_task_of_mteb_is_measured_with_the_documents_of_the_teacher(
    root: Path,
    stage: dict[str, Any],
    exported: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A task of search; one in which nothing is searched is refused."""
    from datasets import Dataset
    from mteb.mocks.mock_tasks.retrieval import MockRetrievalTask
    from mteb.mocks.mock_tasks.sts import MockSTSTask

    rows = [{"id": f"q{at}", "text": text} for at, text in enumerate(SHORTENED[:12])]
    pages = [{"id": f"d{at}", "title": "", "text": text} for at, text in enumerate(PASSAGES)]
    split = {
        "queries": Dataset.from_list(rows),
        "corpus": Dataset.from_list(pages),
        "relevant_docs": {f"q{at}": {f"d{at}": 1} for at in range(12)},
        "top_ranked": None,
    }

    class Own(MockRetrievalTask):  # type: ignore[misc]
        def load_data(self, **_: Any) -> None:
            self.dataset, self.data_loaded = {"default": {"val": split, "test": split}}, True

    known = {"MockRetrievalTask": Own(), "MockSTSTask": MockSTSTask()}
    monkeypatch.setattr(
        "stillhouse.evaluation.mteb_tasks.open_tasks", lambda names, final: [known[name] for name in names]
    )
    data = ["--suite", "mteb:MockRetrievalTask", "--final"]
    found = evaluated(stage["folder"], root, *data, "--documents-by", "teacher")
    one = found["documents_by"]["suites"]["mteb"]["MockRetrievalTask"]["test_ndcg_at_10"]
    assert one["asymmetric"] == pytest.approx(reference(exported, tiny_model, "dev")["ndcg@10"], abs=1e-5)
    assert one["teacher"] == pytest.approx(reference(tiny_model, tiny_model, "dev")["ndcg@10"], abs=1e-5)
    assert one["symmetric"] == pytest.approx(reference(exported, exported, "dev")["ndcg@10"], abs=1e-5)
    assert len({one[name] for name in ("teacher", "symmetric", "asymmetric")}) > 1
    assert found["documents_by"]["documents_encoded"] == 60
    capsys.readouterr()
    where = [
        "--suite",
        "mteb:MockSTSTask",
        "--final",
        "--documents-by",
        "teacher",
        "--root",
        str(root / "runs"),
    ]
    said = refused(capsys, "evaluate", str(stage["folder"]), *where)
    assert "must go with suites whose queries search documents" in said and "suites=['mteb']" in said


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A stock model of half the dimension."""
    from sentence_transformers.sentence_transformer.modules import Dense

    model, folder = SentenceTransformer(str(tiny_model), device="cpu"), tmp_path_factory.mktemp("narrow")
    model.append(Dense(32, 16))
    model.save(str(folder / "model"))
    return folder / "model"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_what_cannot_be_compared_is_refused(
    root: Path,
    flags: list[str],
    stage: dict[str, Any],
    narrow: Path,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ["--suite", "retrieval", "--data-root", str(root / "data"), "--root", str(root / "runs")]

    def message(model: object, documents_by: object, *more: str) -> str:
        return refused(capsys, "evaluate", str(model), *where, "--documents-by", str(documents_by), *more)

    assert "must go with a stage or a sweep, whose teacher is known" in message(tiny_model, "teacher")
    other = message(stage["folder"], narrow)
    assert "must name the teacher that the student was trained with" in other and str(narrow) in other
    dims = message(narrow, tiny_model)
    assert "queries=16, documents=32" in dims and "keep_projection=true" in dims
    assert "suites=['cost']" in message(stage["folder"], "teacher", "--suite", "cost,retrieval")
    assert "not given together" in message("", "teacher", "--from-run", "run.txt")
    assert "there is no /nowhere" in message(tiny_model, "/nowhere")
    older = root / "older"
    shutil.copytree(stage["folder"], older)
    facts = json.loads((older / "facts.json").read_text())
    del facts["teacher_models"]
    (older / "facts.json").write_text(json.dumps(facts))
    assert "Name the teacher with --documents-by NAME" in message(older, "teacher")
    assert evaluated(older, root, *where[:4], "--documents-by", str(tiny_model))["documents_by"]
    for method, more, reason in (
        ("ibkd", [], "through a linear layer, which is dropped after the training"),
        ("hpd", ["--set", "dim=16"], "its vectors have 16 dimensions and its teacher's 32"),
        ("hpd", ["--set", "dim=32"], "principal components"),
    ):
        sizes = {"ibkd": ["--set", "distil_batch_size=16"], "hpd": ["--set", "batch_size=16"]}[method]
        report = root / "other.json"
        budget = ["--distil-budget", "32", "--evaluations", "1", "--layers", "[0,1]", "--json", str(report)]
        assert main(["train", method, "--local", *flags, *budget, *sizes, *more]) == 0
        said = message(json.loads(report.read_text())["folder"], "teacher")
        assert reason in said and "needs a student whose vectors are in its teacher's space" in said


@each_row(
    ("method", "more", "reason"),
    [
        ("ibkd", [], "through a linear layer"),
        ("hpd", ["--set", "dim=16"], "its vectors have 16 dimensions and its teacher's 32"),
        ("simcse", ["--labelled", "PAIRS", "--finetune-budget", "32"], "it follows no teacher"),
        ("metakd", ["--labelled", "PAIRS", "--finetune-budget", "32"], "follows a head over its teacher's"),
        (
            "ibkd",
            [
                *("--labelled", "PAIRS", "--finetune-budget", "32", "--set", "keep_projection=false"),
                *("--set", "projection=16"),
            ],
            "through a linear layer",
        ),
        ("crd", [], "through a head on either side"),
        ("mse", ["--student-kind", "static", "--set", "student.dim=16"], "its vectors have 16 dimensions"),
    ],
)
def test_selection_is_refused_before_any_work(
    method: str,
    more: list[str],
    reason: str,
    flags: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"query": f"cat {at}", "passage": f"the cat {at}", "negative": "sun"} for at in range(40)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = [str(pairs) if each == "PAIRS" else each for each in more]
    own = [*flags[2:], "--root", str(tmp_path / "empty"), "--distil-budget", "1024"]
    own += ["--select", "asymmetric"]
    said = refused(capsys, "train", method, "--local", *own, *given)
    assert reason in said and "keep_projection=true" in said
    assert not (tmp_path / "empty" / "stores").exists() and not (tmp_path / "empty" / "corpora").exists()


def test_fine_tuning_stays_near_and_says_so(
    root: Path, flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stage on labelled text continues from a student that followed the teacher."""
    pairs, report = tmp_path / "pairs.jsonl", tmp_path / "report.json"
    rows = [{"query": " ".join(text.split()[:2]), "passage": text} for text in sentences(60, 20)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    budget = ["--distil-budget", "64", "--finetune-budget", "32", "--evaluations", "1", "--layers", "[0,1]"]
    sizes = ["--set", "batch_size=16", "--set", "finetune_batch_size=16"]
    given = ["--labelled", str(pairs), "--select", "asymmetric", "--json", str(report)]
    assert main(["train", "mse", "--local", *flags, *budget, *sizes, *given]) == 0
    folder = json.loads(report.read_text())["folder"]
    assert "collection_asymmetric_cosine_ndcg@10" in json.loads(report.read_text())["metrics"]
    capsys.readouterr()
    data = ["--suite", "retrieval", "--data-root", str(root / "data"), "--documents-by", "teacher"]
    evaluated(folder, root, *data)
    assert "learnt from labelled text alone" in capsys.readouterr().err


def test_the_export_of_both_sides_searches_as_it_was_measured(
    root: Path,
    stage: dict[str, Any],
    exported: Path,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One folder of stock sentence-transformers: its own figures are the asymmetric ones."""
    # The queries' ONNX graph, which takes most of the time, has a test of its own.
    monkeypatch.setattr("stillhouse.students.export.asymmetric.why_not", lambda student, form: "no extra")
    where, folder = ["--root", str(root / "runs")], root / "both"
    data = ["--suite", "retrieval", "--data-root", str(root / "data")]
    assert main(["export", str(stage["folder"]), str(folder), "--format", "asymmetric", *where]) == 0
    assert "(asymmetric, " in capsys.readouterr().out
    found = evaluated(folder, root, *data)["retrieval"]["own"]
    beside = evaluated(stage["folder"], root, *data, "--documents-by", "teacher")["documents_by"]
    for name, one in beside["suites"]["retrieval"]["own"].items():
        assert found[name] == pytest.approx(one["asymmetric"], abs=1e-6), name
    stock: Any = SentenceTransformer(str(folder), device="cpu")
    queries: Any = SentenceTransformer(str(exported), device="cpu").encode(SHORTENED)
    documents: Any = SentenceTransformer(str(tiny_model), device="cpu").encode(PASSAGES)
    assert (stock.encode_query(SHORTENED) * queries).sum(1).min() >= 0.9999
    assert (stock.encode_document(PASSAGES) * documents).sum(1).min() >= 0.9999
    card = (folder / "README.md").read_text()
    assert "Queries are embedded by the student" in card and "asymmetric" in card.split("---")[1]
    assert "collection_asymmetric_cosine_ndcg@10" in card and "documents were embedded by the teacher" in card
    capsys.readouterr()
    assert main(["export", str(stage["folder"]), "--format", "list", *where]) == 0
    assert "asymmetric             yes" in capsys.readouterr().out


def test_an_export_of_both_sides_is_refused_for_a_student_of_another_space(
    root: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    report = root / "outside.json"
    budget = ["--distil-budget", "32", "--evaluations", "1", "--layers", "[0,1]", "--json", str(report)]
    assert main(["train", "ibkd", "--local", *flags, *budget, "--set", "distil_batch_size=16"]) == 0
    stage = json.loads(report.read_text())["folder"]
    where = ["--root", str(root / "runs")]
    said = refused(capsys, "export", stage, str(root / "none"), "--format", "asymmetric", *where)
    assert "dropped after the training" in said and not (root / "none").exists()
    assert main(["export", stage, "--format", "list", *where]) == 0
    assert "asymmetric             no: asymmetric search needs" in capsys.readouterr().out
