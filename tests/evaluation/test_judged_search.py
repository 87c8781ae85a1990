"""Published collections: figures equal those of trec_eval, passages are streamed, bad lines are reported."""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, R, nDCG
from rows import each_row

from stillhouse.core.artifacts import Workspace, lock_of, locked
from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.corpora.published.judged import JudgedCollection, find_collections
from stillhouse.corpora.published.smart_format import read_sentences
from stillhouse.corpora.search_task import TaskFiles, judgements_of, order_of_ids, read_task
from stillhouse.corpora.tables import (
    open_judgements,
    open_texts,
    sampled_judgements,
    write_collection,
    write_texts,
)
from stillhouse.evaluation.benchmarks import retrieval
from stillhouse.evaluation.benchmarks.retrieval import OnDisk, rank_collection, rank_on_disk
from stillhouse.evaluation.finite_encoder import PIECE, FiniteEncoder
from stillhouse.evaluation.metrics import Values
from stillhouse.evaluation.retrieval import DocSearch
from stillhouse.evaluation.search import exact
from stillhouse.evaluation.search.exact import TILE, Ranking, merge, search_stream
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.passage_vectors import PassageVectors, vectors_folder
from stillhouse.evaluation.search.sharded import search_shard
from stillhouse.evaluation.trec_runs import open_run, query_figures, read_run, run_figures, write_run

COLLECTIONS, QUERIES, PASSAGES, RELEVANT = 18, 250, 40, 28
MEASURES = {
    nDCG @ 10: "ndcg@10",
    AP: "map",
    R @ 1: "recall@1",
    R @ 10: "recall@10",
    R @ 100: "recall@100",
    RR: "mrr@10",
}


class Coarse:
    """An encoder of letter counts, so that scores tie; it records the largest number of texts in one call."""

    most = texts = 0

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.most, self.texts = max(self.most, len(texts)), self.texts + len(texts)
        return np.array([[text.count("a"), text.count("b"), 1] for text in texts], np.float32)


class Slow(Coarse):
    """An encoder whose clock goes on by eight seconds at every call."""

    clock = 0.0

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.clock += 8
        return super().encode(texts)


def write_beir(folder: Path, *, passages: int = 60, queries: int = 12) -> Path:
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)

    def text() -> str:
        return "".join(draw.choice(list("abc"), 6))

    corpus = [{"_id": f"d{at}", "title": "a", "text": text()} for at in range(passages)]
    topics = [{"_id": f"q{at}", "text": text()} for at in range(queries - 1)] + [
        {"_id": "d3", "text": "aabb"}
    ]
    for name, rows in (("corpus", corpus), ("queries", topics)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore"]
    for at in [*range(queries - 2), "d"]:
        query = "d3" if at == "d" else f"q{at}"
        for passage in draw.choice(passages, 5, replace=False):
            lines.append(f"{query}\td{passage}\t{draw.integers(0, 3)}")
        lines.append(
            f"{query}\td{passages - 1}\t1" if f"{query}\td{passages - 1}\t" not in str(lines) else ""
        )
    (folder / "qrels/dev.tsv").write_text("\n".join(filter(None, lines)) + "\n")
    return folder


def opened(folder: Path, **options: Any) -> JudgedCollection:
    """The collection of a folder."""
    (collection,), _ = find_collections(str(folder), **options)
    return collection


def test_figures_match_trec_eval_and_the_run_file(tmp_path: Path) -> None:
    collection = opened(write_beir(tmp_path / "toy"), drop_own_ids=True)
    assert collection.split == "dev"
    assert collection.notes[0] == "1 queries of toy have no relevant passage: left out"
    assert "1 passages of toy have the id of a query" in collection.notes[1]
    run = rank_collection(collection, Coarse())
    assert "d3" not in [passage for passage, _ in run["d3"]] and len(run["q0"]) == 60
    figures = run_figures(run, collection.qrels)
    names = {nDCG @ 10: "ndcg@10", AP: "map", R @ 1: "recall@1", R @ 10: "recall@10"}
    scores = {query: dict(hits) for query, hits in run.items()}
    reference = ir_measures.calc_aggregate(list(names), collection.qrels, scores)
    # trec_eval has no cutoff for MRR, so the run is truncated instead.
    cut = {query: dict(hits[:10]) for query, hits in run.items()}
    assert figures["mrr@10"] == pytest.approx(ir_measures.calc_aggregate([RR], collection.qrels, cut)[RR])
    for measure, name in names.items():
        assert figures[name] == pytest.approx(reference[measure], abs=1e-9), name
    write_run(tmp_path / "run.txt", run)
    assert run_figures(read_run(tmp_path / "run.txt"), collection.qrels) == figures


def test_passages_are_read_block_by_block_and_encoded_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = opened(write_beir(tmp_path / "big", passages=2 * TILE + 9))
    held: list[int] = []

    def noted(queries: FloatArray, blocks: Iterator[FloatArray], k: int, *, threads: int) -> Ranking:
        def each() -> Iterator[FloatArray]:
            for block in blocks:
                held.append(len(block))
                yield block

        return search_stream(queries, each(), k, threads=threads)

    monkeypatch.setattr(retrieval, "search_stream", noted)
    whole, parts = Coarse(), Coarse()
    assert rank_collection(collection, whole, block=3 * TILE) == rank_collection(
        collection, parts, block=TILE
    )
    assert held == [2 * TILE + 9, TILE, TILE, 9]
    assert parts.texts == whole.texts and parts.most == whole.most == PIECE, "vectors are those of the pieces"


def test_a_slow_model_shows_how_many_passages_it_has_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    collection = opened(write_beir(tmp_path / "big", passages=2 * PIECE + 9))
    model = Slow()
    monkeypatch.setattr("stillhouse.core.console.time.monotonic", lambda: float(model.clock))
    quick = rank_collection(collection, Coarse())
    assert not capsys.readouterr().err
    assert rank_collection(collection, model) == quick
    rate = f"{PIECE / 8:.0f}/s"
    assert capsys.readouterr().err.splitlines() == [
        f"  encoding big: {PIECE:,} passages, {rate}",
        f"  encoding big: {2 * PIECE:,} passages, {rate}",
        f"  encoding big: {2 * PIECE + 9:,} passages, {(2 * PIECE + 9) / 24:.0f}/s",
    ]


def test_older_file_formats(tmp_path: Path) -> None:
    cran, cacm, sci = (tmp_path / "retrieval" / name for name in ("cran", "cacm", "scifact"))
    for folder in (cran, cacm, sci / "qrels"):
        folder.mkdir(parents=True)
    (cran / "cran.all.1400.xml").write_text(
        "<doc>\n<docno>1</docno>\n<title>wing\nflow</title>\n<text>wing flow\n of air</text>\n</doc>\n"
        "<doc>\n<docno>2</docno>\n<title></title>\n<text></text>\n</doc>\n"
        "<DOC>\n<DOCNO>3</DOCNO>\nplain text\n</DOC>\n"
    )
    (cran / "cran.qry.xml").write_text(
        "<top>\n<num> 1</num>\n<title>\nwhat\n</title>\n</top>\n"
        "<top>\n<num> 7</num><title>why</title>\n</top>\n"
    )
    (cran / "cranqrel.trec.txt").write_text("1 0 1 1\n2 0 3 1\n")
    (cacm / "cacm.all").write_text(".I 1\n.T\nOn a\n.W\nmachine\n.A\nNobody\n.I 2\n.T\nOther\n.X\n1 5 1\n")
    (cacm / "query.text").write_text(".I 1\n.W\n machines?\n.N\n 1. Me\n.I 0\n")
    (cacm / "qrels.text").write_text("01 0002  0 0\n")
    (sci / "corpus_train.csv").write_text(
        'doc_id,title,abstract,structured\n4,T,"[\'one\'\n ""two\'s""]",False\n'
    )
    (sci / "claims_train.csv").write_text("id,claim,evidence\n0,c,1\n0,c,2\n")
    (sci / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\n0\t4\t1\n")
    found = {each.name: each for each in find_collections(str(tmp_path), split="train")[0]}
    assert list(found) == ["scifact"] and found["scifact"].split == "train"
    others, notes = find_collections(str(tmp_path))
    assert notes == ("scifact has no dev judgements (it has: train): left out",)
    found |= {each.name: each for each in others}
    texts = {name: [(entry.id, entry.text) for entry in each.stream()] for name, each in found.items()}
    assert texts["cran"] == [("1", "wing flow of air"), ("3", "plain text")]
    assert found["cran"].queries == {"1": "what", "2": "why"}
    assert "line 8)" in found["cran"].notes[1] and "in order" in found["cran"].notes[0]
    assert texts["cacm"] == [("1", "On a machine"), ("2", "Other")]
    assert found["cacm"].queries == {"1": "machines?"} and found["cacm"].qrels == {"1": {"2": 1}}
    assert texts["scifact"] == [("4", "T one two's")]
    assert read_sentences("['a, b' 'c']") == ["a, b", "c"]
    assert {each.name for each in find_collections(str(tmp_path), final=True)[0]} == {"cran", "cacm"}


def test_queries_of_the_other_split_are_not_without_a_passage(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "toy")
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq10\td1\t1\n")
    collection = opened(folder)
    assert collection.notes == ()
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq10\td1\t0\nq9\td1\t1\n")
    collection = opened(folder)
    assert collection.notes == ("1 queries of toy have no relevant passage: left out",)


def test_collections_are_chosen_by_name_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    one, two = (write_beir(tmp_path / "retrieval" / name) for name in ("toy", "big"))
    (two / "corpus.jsonl").write_text("{")
    found, _ = find_collections(str(tmp_path), only=["toy"])
    assert [each.files[0].parent for each in found] == [one], "others are not read"
    with pytest.raises(BadInput, match=r"no collection 'tov' under .*Did you mean toy"):
        find_collections(str(tmp_path), only=["tov"])
    with pytest.raises(BadInput, match=r"but toy has no test judgements \(it has: dev\). Name one"):
        find_collections(str(tmp_path), final=True, only=["toy"])
    with pytest.raises(BadInput, match=r"but big has no train judgements \(it has: dev\)"):
        find_collections(str(tmp_path), split="train")
    other = write_beir(tmp_path / "beir/toy")
    with pytest.raises(BadInput, match=f"{one} and {other} have the same"):
        find_collections(str(tmp_path), only=["toy"])


@each_row(
    ("file", "text", "message"),
    [
        (
            "corpus.jsonl",
            '{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}',
            "line 2: an id must be unique",
        ),
        ("corpus.jsonl", '{"_id": "d1"}', "line 1: must be a JSON object"),
        ("queries.jsonl", "{", "line 1: must be a JSON object"),
        (
            "qrels/dev.tsv",
            "query-id\tcorpus-id\tscore\nq0\td99\t1",
            "line 2: must name an existing passage, but 'd99'",
        ),
        (
            "qrels/dev.tsv",
            "query-id\tcorpus-id\tscore\nq99\td1\t1",
            "line 2: must name an existing query, but 'q99'",
        ),
        (
            "qrels/dev.tsv",
            "query-id\tcorpus-id\tscore\nq0\td1\t1\nq0\td1\t1",
            "line 3: 'q0' and 'd1' must be judged once",
        ),
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore\nq0\td1\tmuch", "line 2: must be a judgement"),
        ("qrels/dev.tsv", "q0 d1 1\nq1 0 d1 1", "line 2: must be a judgement, `query passage gain`"),
        ("qrels/dev.tsv", "q0 d1 0 1", "line 1: must be a judgement"),
    ],
)
def test_malformed_files_are_reported_with_their_line(
    file: str, text: str, message: str, tmp_path: Path
) -> None:
    folder = write_beir(tmp_path / "toy")
    (folder / file).write_text(text)
    with pytest.raises(BadInput) as refusal:
        opened(folder)
    assert message in str(refusal.value) and str(folder / file) in str(refusal.value)


@each_row(
    ("lines", "message"),
    [
        ("q Q0 d 1 0.5 tag\nq d 1\n", "line 2: must be `query Q0 passage rank score tag`"),
        ("q Q0 d 1 nan tag\n", "line 1: must have a finite score"),
        ("q Q0 d 1 2 t\nr Q0 d 1 2 t\nq Q0 d 2 1 t\n", "line 3: 'q' must have 'd' once"),
        ("q Q0 d 1 2 t\nq Q0 e 1 1 t\n", "line 2: 'q' must have one passage per rank, but has two at rank 1"),
        ("q Q0 d 1 2 t\nq Q0 e 3 5 t\nq Q0 f 2 3 t\n", "line 3: scores must fall as ranks rise, but 'q'"),
        ("", "line 1: must be `query Q0"),
    ],
)
def test_a_malformed_run_is_reported_with_its_line(lines: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(lines)
    with pytest.raises(BadInput, match=message):
        read_run(tmp_path / "run.txt")


def test_an_external_run_is_scored_as_by_ir_measures(tmp_path: Path) -> None:
    """The lines are shuffled, some queries and passages are unknown, and some queries are missing."""
    collection = opened(write_beir(tmp_path / "toy"))
    draw, lines = np.random.default_rng(1), []
    for query in [*list(collection.queries)[2:], "q10", "stranger"]:
        found = [*draw.choice(60, 30, replace=False), "x"]
        lines += [f"{query} Q0 d{name} {rank} {-rank // 3} t" for rank, name in enumerate(found)]
    path = tmp_path / "run.txt"
    path.write_text("\n".join(draw.permutation(lines)))
    run, notes = open_run(path, collection)
    assert [note.partition(" (")[0] for note in notes[:2]] == [
        "2 queries have no relevant passage: left out",
        "1 passages are not in the collection: not relevant",
    ]
    assert notes[2].startswith("2 judged queries are not in") and "line " in notes[0]
    scores = {query: dict(hits) for query, hits in run.items()}
    names = {nDCG @ 10: "ndcg@10", AP: "map", R @ 1: "recall@1", R @ 10: "recall@10"}
    reference = ir_measures.calc_aggregate(list(names), collection.qrels, scores)
    figures = run_figures(run, collection.qrels)
    for measure, name in names.items():
        assert figures[name] == pytest.approx(reference[measure], abs=1e-9), name
    cut = {query: dict(hits[:10]) for query, hits in run.items()}
    assert figures["mrr@10"] == pytest.approx(ir_measures.calc_aggregate([RR], collection.qrels, cut)[RR])
    path.write_text("q0 Q0 other 1 2 t\n")
    with pytest.raises(BadInput, match=r"must be a run of toy, .* 1 of its 1 passages are not in"):
        open_run(path, collection)


def test_ms_marco(tmp_path: Path) -> None:
    folder = tmp_path / "marco"
    folder.mkdir()
    (folder / "collection.tsv").write_text("0\tfirst\ta tab\n1\t\n2\tthird\n")
    (folder / "queries.dev.small.tsv").write_text("0\twhat\n9\twhy\n")
    (folder / "qrels.dev.small.tsv").write_text("0\t0\t2\t1\n")
    collection = opened(folder)
    assert collection.split == "dev" and not collection.own
    assert [(entry.id, entry.text) for entry in collection.stream()] == [
        ("0", "first\ta tab"),
        ("2", "third"),
    ]
    assert collection.queries == {"0": "what"} and collection.qrels == {"0": {"2": 1}}
    with pytest.raises(BadInput, match="has no test judgements"):
        opened(folder, final=True)
    (folder / "collection.tsv").write_text("0\tfirst\nno tab\n")
    with pytest.raises(BadInput, match=r"collection.tsv, line 2: must be an id and a text"):
        opened(folder)
    (folder / "collection.tsv").write_text("0\tfirst\n2\ta\n1\tb\n2\tc\n")
    with pytest.raises(BadInput, match="line 4: an id must be unique, but '2'"):
        opened(folder)


def test_search_on_disk_gives_the_same_run_and_removes_the_vectors(tmp_path: Path) -> None:
    collection = opened(write_beir(tmp_path / "toy", passages=TILE + 9))
    workspace = Workspace(tmp_path / "runs")
    how = OnDisk(workspace, indexes=(parse_index("flat"), parse_index("hnsw")), keep=True)
    run, figures_by_index = rank_on_disk(collection, FiniteEncoder(Coarse(), "letters"), how)
    assert run == rank_collection(collection, Coarse())
    assert list(figures_by_index) == ["exact", "flat", "hnsw"]
    assert figures_by_index["flat"]["recall_of_exact@10"] > 0 and "map" not in figures_by_index["flat"]
    assert len(workspace.listed("vectors")) == 1
    again = Coarse()
    assert rank_on_disk(collection, FiniteEncoder(again, "letters"), OnDisk(workspace)) == (run, {})
    assert again.most == len(collection.queries)
    assert workspace.listed("vectors") == []


def test_two_commands_do_not_share_half_written_vectors(tmp_path: Path) -> None:
    collection = opened(write_beir(tmp_path / "toy"))
    workspace, model = Workspace(tmp_path / "runs"), FiniteEncoder(Coarse(), "letters")
    other = threading.Thread(target=rank_on_disk, args=(collection, model, OnDisk(workspace)))
    with locked(lock_of(vectors_folder(workspace, collection, "letters"))):
        other.start()
        time.sleep(0.5)
        assert other.is_alive() and workspace.listed("vectors") == []
    other.join(60)
    assert not other.is_alive()


def test_deep_json_odd_literals_and_other_encodings_are_reported(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "toy")
    corpus = folder / "corpus.jsonl"
    corpus.write_text('{"_id": "1", "text": ' + "[" * 5000 + "]" * 5000 + "}\n" + corpus.read_text())
    with pytest.raises(BadInput, match=r"corpus\.jsonl, line 1: must be a JSON object"):
        opened(folder)
    from stillhouse.corpora.published.judged import _claims

    claims = tmp_path / "corpus.csv"
    for content in (
        b"doc_id,title,abstract\n4,T,\"['caf\xe9 one']\"\n",
        b"doc_id,title,abstract\n4,T,\"['\\xzz']\"\n",
        b"doc_id,title,abstract\n4,T,\"['\\N{nothing}']\"\n",
    ):
        claims.write_bytes(content)
        with pytest.raises(BadInput, match=r"corpus\.csv"):
            list(_claims(claims))


def write_toy(folder: Path, corpus: Sequence[str], queries: Sequence[str], qrels: str) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    (folder / "queries.jsonl").write_text("\n".join(queries))
    (folder / "qrels/dev.tsv").write_text(qrels)
    return folder


def numbered(texts: Sequence[str]) -> list[str]:
    return [json.dumps({"_id": str(at), "text": text}) for at, text in enumerate(texts)]


def test_what_a_collection_holds_is_what_is_measured(tmp_path: Path) -> None:
    """Both sides numbered, no header, and texts that are missing or no Unicode."""
    texts = ["a", "b", "ab", "aab"]
    folder = write_toy(
        tmp_path / "toy",
        [
            *numbered(texts),
            '{"_id": "n", "title": NaN, "text": "bbb"}',
            '{"_id": "e", "text": "a\\ud83d"}',
            '{"_id": "+", "text": "aab."}',
            '{"_id": "x", "text": null}',
        ],
        [*numbered(texts), '{"_id": "n", "text": null}', '{"_id": "+", "text": "aab"}'],
        "".join(f"{at} 0 {at} 1\n" for at in range(4)) + "n 0 n 1\n+ 0 3 1\n+ 0 x 2\n3 0 e -1.0\n",
    )
    collection = opened(folder)
    assert list(collection.queries) == ["0", "1", "2", "3", "+"]
    assert [entry.text for entry in collection.stream()] == [*texts, "bbb", "aab."]
    assert collection.own == {"+": 5} and len(collection.notes) == 3
    run = rank_collection(collection, Coarse())
    assert [run[query][0][0] for query in collection.queries] == ["0", "1", "2", "3", "3"]
    assert query_figures(run, collection.qrels)["recall@1"].tolist() == [1, 1, 1, 1, 0.5]
    workspace = Workspace(tmp_path / "w")
    task = read_task(workspace, TaskFiles(str(folder), test="dev"))
    for part in (task.dev, task.test):
        found = DocSearch(part, workspace)(Coarse())["docsearch_cosine_recall@1"]
        assert found in (
            1.0,
            (len(open_texts(workspace, part.queries)) - 0.5) / len(open_texts(workspace, part.queries)),
        )
    dropped = read_task(workspace, TaskFiles(str(folder), test="dev", drop_own_ids=True)).dev
    own = open_judgements(workspace, dropped).own_N2
    collection = opened(folder, drop_own_ids=True)
    assert set(collection.own.values()) == {5}
    assert set(own[:, 1].tolist()) <= {5}, "judged pairs stay"
    with pytest.raises(BadInput, match="must have no blank, but 'a b' has one"):
        write_run(tmp_path / "run", {"q": [("a b", 1.0)]})
    (tmp_path / "run").write_text("q\u00a01 Q0 d 1 1 t\n")
    assert read_run(tmp_path / "run") == {"q\u00a01": [("d", 1.0)]}


class Signs:
    """Sixteen letters as signs: cosines are multiples of 1/8, exact in float32, and often tie."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[1 if letter == "a" else -1 for letter in text] for text in texts], np.float32)


def random_collection(folder: Path, draw: np.random.Generator) -> tuple[JudgedCollection, dict[str, str]]:
    """Both sides numbered; passages without a text, equal ones, those that are a query; gains of -2 to 3."""
    texts = {str(at): "".join(draw.choice(list("ab"), 16)) for at in range(PASSAGES)}
    texts |= {name: texts[str(draw.integers(PASSAGES))] for name in texts if draw.random() < 0.2}
    asked = [texts[str(at % PASSAGES)] if draw.random() < 0.5 else texts["0"][::-1] for at in range(QUERIES)]
    corpus = [*numbered(list(texts.values())), '{"_id": "x", "text": null}', '{"_id": "y", "text": NaN}']
    lines = []
    for query in range(QUERIES):
        judged = draw.choice([*texts, "x", "y"], draw.integers(0, 9), replace=False)
        most = [4 if passage in "xy" or int(passage) < RELEVANT else 1 for passage in judged]
        lines += [
            f"{query} {each} {draw.integers(-2, high)}" for each, high in zip(judged, most, strict=True)
        ]
    own = bool(draw.integers(2))
    write_toy(folder, corpus, numbered(asked), "\n".join(lines))
    collection = opened(folder, drop_own_ids=own)
    for name, text in collection.queries.items():
        same = name in texts and name not in collection.qrels[name] and (own or texts[name] == text)
        assert (name in collection.own) == same
    return collection, texts


def reference(collection: JudgedCollection, texts: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """The figures of ir_measures by name and query; cosines and what is not found are computed anew."""
    names, model = list(texts), Signs()
    passages_ND, own = model.encode(list(texts.values())), collection.own
    scores: dict[str, dict[str, float]] = {}
    for query, text in collection.queries.items():
        ranked = zip(names, (passages_ND @ model.encode([text])[0] / 16).tolist(), strict=True)
        scores[query] = {name: score for name, score in ranked if not (query in own and name == query)}
    best = {query: sorted(hits.items(), key=lambda hit: (hit[1], hit[0])) for query, hits in scores.items()}
    # trec_eval has no cutoff for MRR, so the run is truncated instead.
    cut = {query: dict(hits[-10:]) for query, hits in best.items()}
    qrels = {query: collection.qrels[query] for query in collection.queries}
    found = {name: dict[str, float]() for name in MEASURES.values()}
    for measures, run in (([each for each in MEASURES if each is not RR], scores), ([RR], cut)):
        for one in ir_measures.iter_calc(measures, qrels, run):
            found[MEASURES[one.measure]][one.query_id] = one.value
    return found


def in_shards(queries: FloatArray, files: PassageVectors, k: int, *, actors: int = 1) -> Ranking:
    """Search as the actors would, in this process."""
    return merge([search_shard(queries, files, k, *rows) for rows in exact.shards(files.rows, actors)], k)


def test_every_path_gives_the_figures_of_ir_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suite, shards, FAISS, a run from a file, `DocSearch` and a pool: graded, negative, absent and tied."""
    monkeypatch.setattr(exact, "TILE", 16)
    monkeypatch.setattr(retrieval, "search_files", in_shards)
    worst, cases, model, workspace = dict[str, float](), 0, Signs(), Workspace(tmp_path / "w")

    def compare(
        path: str,
        figures: Mapping[str, Values],
        expected: Mapping[str, Mapping[str, float]],
        order: Sequence[str],
    ) -> None:
        for name in figures.keys() & expected.keys():
            off = np.abs(figures[name] - [expected[name][query] for query in order]).max()
            worst[path] = max(worst.get(path, 0.0), float(off))

    for seed in range(COLLECTIONS):
        draw = np.random.default_rng(seed)
        collection, texts = random_collection(tmp_path / f"c{seed}", draw)
        expected = reference(collection, texts)
        cases += len(collection.queries)
        run = rank_collection(collection, model)
        write_run(tmp_path / "run", run)
        disk = OnDisk(workspace, 3, tuple(map(parse_index, ["flat"] if find_spec("faiss") else [])))
        sharded, of_indexes = rank_on_disk(collection, FiniteEncoder(model, "signs"), disk)
        runs = {"suite": run, "shards": sharded, "--from-run": open_run(tmp_path / "run", collection)[0]}
        order = [query for query in collection.qrels if query in collection.queries]
        for path, each in runs.items():
            compare(path, query_figures(each, collection.qrels), expected, order)
        for name in of_indexes.get("flat", {}).keys() & expected.keys():
            whole = float(np.mean([expected[name][query] for query in order]))
            compare("flat", {name: np.array([of_indexes["flat"][name]])}, {name: {"": whole}}, [""])
        rows = {entry.id: row for row, entry in enumerate(collection.stream())}
        judged = judgements_of(collection, collection.queries, rows, order_of_ids(collection))
        relevant = judged.qrels_N3[(judged.qrels_N3[:, 2] > 0) & (judged.qrels_N3[:, 1] >= 0), 1]
        sample = np.union1d(relevant, draw.choice(PASSAGES, 2))
        queries = write_texts(workspace, "q", collection.queries.values(), deduplicate=False)
        for path, kept in (("DocSearch", np.arange(PASSAGES)), ("pool", sample)):
            among = {str(row): texts[str(row)] for row in kept}
            table = write_texts(workspace, "p", among.values(), deduplicate=False)
            made = write_collection(workspace, "c", queries, table, sampled_judgements(judged, kept))
            items = DocSearch(made, workspace, name="s").itemised(model)[1]
            figures = {name.removeprefix("s_cosine_"): each.parts[0].values_N for name, each in items.items()}
            compare(path, figures, reference(collection, among), list(collection.queries))
    print(f"{cases:,} queries, largest differences: {worst}")
    assert cases >= 3000 and len(worst) >= 5 and max(worst.values()) < 1e-9
