"""A user's own queries: they steer and test, are read as the published suite reads them, and never train."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row
from small_experiment import sentences

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.published.judged import find_collections, layout_of
from stillhouse.corpora.tables import open_judgements, open_rows, open_texts
from stillhouse.evaluation.benchmarks.retrieval import rank_collection
from stillhouse.evaluation.suites import run_suite
from stillhouse.evaluation.trec_runs import run_figures
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of, merged
from stillhouse.experiments.kinds.collection import SearchCollection
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import load_method
from stillhouse.reports.sweep_tables import comparison_table, comparison_table_markdown
from stillhouse.training.models import open_model
from stillhouse.values.data import TextTable

TEXTS = sentences(300, 3)
SENTENCES = [f"The {TEXTS[60]} is here.", f"The {TEXTS[61]} is there."]
PASSAGES, UNSEEN = [*TEXTS[:6], " ".join(SENTENCES), *TEXTS[7:60]], TEXTS[100:]
QUERIES = sentences(400, 8)[-24:]


def write_qrels(folder: Path, split: str, queries: range, gain: int = 2) -> None:
    """Two relevant passages per query with the gains 1 and ``gain``, and one that is judged irrelevant."""
    lines = ["query-id\tcorpus-id\tscore"]
    for at in queries:
        lines += [f"q{at}\td{2 * at}\t1", f"q{at}\td{2 * at + 1}\t{gain}", f"q{at}\td{48 + at % 10}\t0"]
    path = folder / "qrels" / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 passages, the first 12 queries for dev and 12 for test; the last query has the id of a passage."""
    made = tmp_path / "own"
    made.mkdir()
    corpus = [{"_id": f"d{at}", "title": "", "text": text} for at, text in enumerate(PASSAGES)]
    corpus[4] |= {"title": "cat of the house"}
    corpus.append({"_id": "q3", "title": "", "text": QUERIES[3]})
    asked = [{"_id": f"q{at}", "text": text} for at, text in enumerate(QUERIES)]
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (made / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    write_qrels(made, "dev", range(12))
    write_qrels(made, "test", range(12, 24))
    return made


@pytest.fixture
def own(experiment: Experiment, folder: Path, tmp_path: Path) -> Experiment:
    """A corpus that holds some of the collection's texts, in another spelling, and its queries."""
    known = [
        f"  {PASSAGES[0].upper()} .",
        QUERIES[0],
        QUERIES[20],
        PASSAGES[4],
        PASSAGES[59],
        PASSAGES[6],
        SENTENCES[1],
    ]
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join([*UNSEEN, *known]))
    given = {"sentences.corpus": str(corpus), "collection.path": str(folder)}
    return changed(experiment, given)


@pytest.fixture
def ready(workspace: Workspace) -> Callable[..., Prepared]:
    """Prepare an experiment with some changes, for real."""
    local = Embedding(local=True)
    return lambda experiment, **changes: prepare(
        changed(experiment, {name.replace("__", "."): value for name, value in changes.items()}),
        workspace,
        local,
    )


def texts_of(workspace: Workspace, table: TextTable) -> set[str]:
    return set(open_texts(workspace, table))


def test_its_figures_select_and_are_those_of_the_published_suite(
    own: Experiment, folder: Path, workspace: Workspace, ready: Callable[..., Prepared], tiny_model: Path
) -> None:
    """With grades, and without the passage that has the query's own id."""
    prepared, model = ready(own), open_model(str(tiny_model), workspace, "cpu")
    assert prepared.setting.dev.select == "collection_cosine_ndcg@10"
    assert ready(own, collection__metric="mrr@10").setting.dev.select == "collection_cosine_mrr@10"
    assert ready(own, selection__by="agreement").setting.dev.select == "agreement_spearman_cosine"
    for final, suite in ((False, prepared.setting.dev), (True, prepared.test)):
        (published,), _ = find_collections(str(folder), final=final)
        assert published.own == ({} if final else {"q3": 60})
        reference = run_figures(rank_collection(published, model), published.qrels)
        figures = run_suite(suite, model, workspace)
        for name in ("ndcg@10", "mrr@10", "recall@10"):
            assert figures[f"collection_cosine_{name}"] == pytest.approx(reference[name], abs=1e-6), name
    data = prepared.setting[SearchCollection]
    assert set(open_judgements(workspace, data.dev).qrels_N3[:, 2].tolist()) == {0, 1, 2}


def test_its_queries_and_judged_passages_are_not_trained_on(
    own: Experiment, workspace: Workspace, ready: Callable[..., Prepared], capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = ready(own)
    train = texts_of(workspace, prepared.setting[Sentences].store.texts)
    everything = [part.kwargs["store"].texts for part in prepared.setting.dev.evaluators[1:]]
    for table in everything:
        train |= texts_of(workspace, table)
    assert PASSAGES[59] in train, "this one is not judged"
    spelled = {text.casefold().rstrip(" .").strip() for text in train}
    assert not spelled & {PASSAGES[0], QUERIES[0], QUERIES[20], PASSAGES[4]}
    assert not train & {PASSAGES[6], *SENTENCES}
    assert prepared.facts["texts_left_out"] == 6
    assert "texts left out, since they measure: 6 (search 6" in capsys.readouterr().err
    assert prepared.facts["collection"] == "own: 12 dev and 12 test queries, 61 passages"


def test_labelled_pairs_lose_the_rows_that_name_them(
    own: Experiment, workspace: Workspace, ready: Callable[..., Prepared], tmp_path: Path
) -> None:
    rows = [(f"asked: {UNSEEN[at]}", f"answered: {UNSEEN[at + 60]}") for at in range(40)]
    rows += [(QUERIES[1], rows[3][1]), (rows[5][0], PASSAGES[2])]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps({"query": q, "passage": p}) for q, p in rows))
    prepared = ready(own, pairs__path=str(path), pairs__count=0, budget__finetune=32, pairs__negatives=1)
    pairs = prepared.setting[Pairs].examples
    kept = {
        (
            open_texts(workspace, pairs.columns["query"])[[q]][0],
            open_texts(workspace, pairs.columns["passage"])[[p]][0],
        )
        for q, p in zip(
            *(open_rows(workspace, pairs)[name].tolist() for name in ("query", "passage")), strict=True
        )
    }
    assert kept <= set(rows[:40]) and len(kept) >= 30, "mining may leave pairs without enough negatives"
    negatives = texts_of(workspace, pairs.columns["negatives"])
    assert PASSAGES[2] not in negatives and prepared.facts["pairs_left_out"] == 2


def test_an_edited_file_of_judgements_makes_another_stage(
    own: Experiment, folder: Path, ready: Callable[..., Prepared]
) -> None:
    def stage(prepared: Prepared) -> str:
        method = load_method("mse")
        return str(method.plan(method.HyperParameters(batch_size=16), prepared.setting).fingerprint)

    first, again = ready(own), ready(own)
    assert stage(first) == stage(again) and first.test == again.test
    write_qrels(folder, "dev", range(12), gain=3)
    second = ready(own)
    assert stage(second) != stage(first) and second.test == first.test
    write_qrels(folder, "test", range(12, 24), gain=3)
    third = ready(own)
    assert third.test.fingerprint != first.test.fingerprint
    assert stage(third) == stage(second), "what tests does not steer"


def test_one_file_of_judgements_is_divided_by_query(
    own: Experiment, folder: Path, workspace: Workspace, ready: Callable[..., Prepared]
) -> None:
    (folder / "qrels" / "test.tsv").unlink()
    write_qrels(folder, "dev", range(24))
    asked = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    asked[7]["text"] = f"{QUERIES[6].title()}."
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    seen = set()
    for seed in range(4):
        data = ready(own, collection__seed=seed, collection__test_share=0.25).setting[SearchCollection]
        dev, test = (texts_of(workspace, part.queries) for part in (data.dev, data.test))
        assert data.dev.passages == data.test.passages and not dev & test
        assert len(dev | test) == 24 and abs(len(test) - 6) <= 1
        assert ({QUERIES[6], asked[7]["text"]} <= dev) or ({QUERIES[6], asked[7]["text"]} <= test)
        seen.add(frozenset(test))
    assert len(seen) > 1
    assert "divided by query" in ready(own).facts["collection"]


def test_splits_are_files_or_folders_too(
    own: Experiment, folder: Path, tmp_path: Path, workspace: Workspace, ready: Callable[..., Prepared]
) -> None:
    (folder / "qrels" / "test.tsv").rename(folder / "locked.tsv")
    by_file = ready(own, collection__test="locked.tsv").setting[SearchCollection]
    assert texts_of(workspace, by_file.test.queries) == set(QUERIES[12:])
    other = tmp_path / "other"
    other.mkdir()
    (other / "cran.all.1400.xml").write_text("<doc>\n<docno>1</docno>\n<text>a wing</text>\n</doc>\n")
    (other / "cran.qry.xml").write_text("<top>\n<num>1</num>\n<title>what flies</title>\n</top>\n")
    (other / "cranqrel.trec.txt").write_text("1 0 1 3\n")
    for name in (str(other), "../other"):
        by_folder = ready(own, collection__test=name).setting[SearchCollection]
        assert texts_of(workspace, by_folder.test.queries) == {"what flies"}
        assert texts_of(workspace, by_folder.dev.queries) == set(QUERIES[:12])


def test_dev_queries_may_search_a_pool(
    own: Experiment, workspace: Workspace, ready: Callable[..., Prepared]
) -> None:
    prepared = ready(own, collection__dev_pool=3)
    assert prepared.setting.dev.select == "collection_pool_cosine_ndcg@10"
    assert prepared.test.evaluators[0].kwargs["name"] == "collection"
    sampled = prepared.setting.dev.evaluators[0].kwargs["collection"]
    assert len(open_texts(workspace, sampled.passages)) <= 61


@pytest.mark.parametrize(
    ("files", "changes", "message"),
    [
        (
            {"qrels/dev.tsv": None},
            {"collection.dev": "train"},
            r"must have a dev split, .*'train'; it has: test",
        ),
        (
            {"qrels/test.tsv": None, "qrels/train.tsv": "same"},
            {},
            r"must have a test split.*it has: dev, train",
        ),
        (
            {"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq0\td99\t1"},
            {},
            r"dev.tsv, line 2: must name an existing passage, but 'd99'",
        ),
        (
            {"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq99\td1\t1"},
            {},
            "line 2: must name an existing query, but 'q99'",
        ),
        (
            {"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq0\td1\t0"},
            {},
            "must have a query with a relevant passage",
        ),
        ({"qrels/dev.tsv": ""}, {}, "must have a query with a relevant passage"),
        (
            {"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq12\td1\t1"},
            {},
            r"must not share queries, but 1 of .*test.tsv are also in",
        ),
        ({"queries.jsonl": None}, {}, r"must be complete, but .*queries.jsonl is missing"),
        ({"corpus.jsonl": None}, {}, "Lay it out as BEIR does"),
        ({}, {"collection.path": "nowhere"}, "collection.path must be a folder"),
        (
            {"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq0\td1\t1"},
            {"collection.test": "dev"},
            "cannot be divided",
        ),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(
    files: dict[str, str | None],
    changes: dict[str, object],
    message: str,
    own: Experiment,
    folder: Path,
    workspace: Workspace,
) -> None:
    for name, text in files.items():
        if text is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text((folder / "qrels/dev.tsv").read_text() if text == "same" else text)
    with pytest.raises(BadInput, match=message):
        given = changed(own, changes)
        given.check()
        prepare(given, workspace, Embedding(local=True))


@each_row(
    ("values", "message"),
    [
        ({"collection.path": "a", "collection.synthetic": "paragraph"}, "must be one's own or synthetic"),
        ({"collection.path": "a", "collection.dev_queries": 5}, r"taken whole, .*dev_queries=5"),
        ({"collection.test_share": 0.2}, r"must go with a folder of one's own .*test_share=0.2"),
        ({"collection.metric": "map"}, r"metric in \('ndcg@10', 'mrr@10'\)"),
        ({"collection.synthetic": "word"}, "synthetic in"),
        ({"collection.synthetic": "document"}, "pydocs has queries"),
    ],
)
def test_fields_that_contradict_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        experiment_of(merged({}, values))


def test_by_the_command_line_it_is_measured_and_its_test_split_is_locked(
    own: Experiment, folder: Path, workspace: Workspace, tiny_model: Path, tmp_path: Path
) -> None:
    source: Any = own.source
    flags = [
        "--teacher",
        str(tiny_model),
        "--corpus",
        source.corpus,
        "--sentences",
        "0",
        "--max-length",
        "16",
    ]
    flags += ["--dev-collection", str(folder), "--set", "sentences.held_out=20"]
    report = tmp_path / "figures.json"
    command = ["evaluate", str(tiny_model), *flags, "--root", str(workspace.root), "--json", str(report)]
    assert main(command) == 0
    assert "collection_cosine_ndcg@10" in json.loads(report.read_text())["metrics"]
    log = workspace.root / "openings.jsonl"
    assert not log.exists()
    assert main([*command, "--final"]) == 0 and main([*command, "--final"]) == 0
    suites = [json.loads(line)["suite"] for line in log.read_text().splitlines()]
    assert len(suites) == 2 and len(set(suites)) == 1


@pytest.fixture
def articles(experiment: Experiment, tmp_path: Path) -> Experiment:
    """150 texts of seven sentences each, and queries that are made from them."""
    draw, path = np.random.default_rng(2), tmp_path / "articles.jsonl"
    parts = sentences(1400, 4)
    made = [
        {
            "text": " ".join(
                f"The {parts[7 * at + each]} number {draw.integers(9999)} is here." for each in range(7)
            )
        }
        for at in range(150)
    ]
    path.write_text("\n".join(map(json.dumps, made)))
    given = {"sentences.corpus": str(path), "sentences.split": True, "collection.synthetic": "paragraph"}
    return changed(experiment, {**given, "collection.dev_passages": 40})


def test_synthetic_queries_are_held_out_sentences_of_their_passages(
    articles: Experiment, workspace: Workspace, ready: Callable[..., Prepared], tmp_path: Path
) -> None:
    prepared = ready(articles)
    data = prepared.setting[SearchCollection]
    texts = [json.loads(line)["text"] for line in (tmp_path / "articles.jsonl").read_text().splitlines()]
    train = texts_of(workspace, prepared.setting[Sentences].store.texts)
    used = []
    for part in (data.dev, data.test):
        queries, passages = open_texts(workspace, part.queries), open_texts(workspace, part.passages)
        for query, row, gain in open_judgements(workspace, part).qrels_N3.tolist():
            (sentence,), (passage,) = queries[[query]], passages[[row]]
            (source,) = [text for text in texts if sentence in text]
            assert gain == 1 and sentence not in passage and passage.count(".") <= 4
            assert all(each in source for each in passage.removesuffix(".").split(". "))
            assert not any(each in source for each in train), "nothing of its text is trained on"
            used.append(source)
        assert len(queries) == 15
    assert len(set(used)) == 30 and len(open_texts(workspace, data.dev.passages)) == 40
    assert ready(articles).setting == prepared.setting
    assert ready(articles, collection__seed=1).setting[SearchCollection] != data
    whole = ready(articles, collection__synthetic="document").setting[SearchCollection]
    assert {text.count(".") for text in texts_of(workspace, whole.test.passages)} == {6, 7}


def test_synthetic_queries_are_named_as_such_everywhere(
    articles: Experiment, workspace: Workspace, ready: Callable[..., Prepared], tiny_model: Path
) -> None:
    prepared, model = ready(articles), open_model(str(tiny_model), workspace, "cpu")
    assert prepared.setting.dev.select == "synthetic_cosine_ndcg@10"
    assert prepared.facts["collection"].startswith("synthetic queries (a held-out sentence")
    tested = {"student": {"metrics": run_suite(prepared.test, model, workspace), "cost": {}}}
    for table in (comparison_table(tested, 400), comparison_table_markdown(tested)):
        assert all(f"synthetic {name}" in table for name in ("ndcg@10", "mrr@10", "recall@1"))


def test_a_corpus_of_single_sentences_has_no_synthetic_queries(
    articles: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "articles.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    with pytest.raises(BadInput, match=r"at least 10 texts per split that have several sentences.*only 0"):
        prepare(articles, workspace, Embedding(local=True))


def test_ms_marco_and_cacm_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "collection.tsv").write_text("0\ta\n")
    for name in ("dev.small", "train"):
        (tmp_path / f"qrels.{name}.tsv").write_text("1\t0\t0\t1\n")
    layout = layout_of(tmp_path)
    assert layout is not None and list(layout.splits) == ["dev.small", "train"]
    assert dataclasses.asdict(layout)["splits"]["train"][1] == tmp_path / "queries.train.tsv"
