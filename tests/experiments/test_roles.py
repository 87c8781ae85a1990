"""Columns have roles: each is embedded, tokenised and measured with the prompt of its role."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillhouse.core.artifacts import Workspace, read_json, read_manifest, write_json
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import spec
from stillhouse.core.model_folder import read_folder
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY, SETTINGS, Prompts, Reading
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.core.types import FloatArray
from stillhouse.corpora.published.judged import find_collections
from stillhouse.corpora.tables import open_texts, write_collection, write_texts
from stillhouse.evaluation.agreement import Agreement
from stillhouse.evaluation.benchmarks.retrieval import rank_collection
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.retrieval import DocSearch
from stillhouse.evaluation.suites import run_suite
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_mapping, changed, experiment_of
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.students.transformer import TransformerChoice
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import mse, pkd
from stillhouse.students.head import require_model
from stillhouse.sweeps.measuring import source_of
from stillhouse.sweeps.stage_export import export_stage
from stillhouse.teachers.kinds.model import TeacherEncoder
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.store import open_store
from stillhouse.training.models import encoder_in, open_model
from stillhouse.training.table import live_reader, student_reader
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import (
    AllRows,
    Collection,
    Examples,
    Mined,
    Model,
    Store,
    TextTable,
    TokenTable,
)
from stillhouse.values.stage import DevSuite

PROMPTS = {"teacher.prompts.query": "query text: ", "teacher.prompts.document": "passage of: "}
OWN = {"student.prompts.query": "find ", "student.prompts.document": "read "}


class Listener:
    """A model that notes in which role it reads which texts."""

    def __init__(self) -> None:
        self.read: dict[str, list[str]] = {}

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return self._noted(PLAIN, texts)

    def encode_query(self, texts: Sequence[str]) -> FloatArray:
        return self._noted(QUERY, texts)

    def encode_document(self, texts: Sequence[str]) -> FloatArray:
        return self._noted(DOCUMENT, texts)

    def _noted(self, role: str, texts: Sequence[str]) -> FloatArray:
        self.read.setdefault(role, []).extend(texts)
        return np.random.default_rng(0).standard_normal((len(texts), 4)).astype(np.float32)


@pytest.fixture
def given(experiment: Experiment, tmp_path: Path) -> Experiment:
    """Sentences and pairs to mine, with prompts of the teacher and of the student."""
    rows = [{"query": f"cat {row}", "passage": f"dog {row} house"} for row in range(20)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = {"pairs.path": str(tmp_path / "pairs.jsonl"), "budget.finetune": 64, "max_length": 24}
    return changed(experiment, {**more, **PROMPTS, **OWN})


@pytest.mark.parametrize("role", [PLAIN, QUERY, DOCUMENT])
def test_every_column_is_embedded_with_the_prompt_of_its_role(
    role: str, given: Experiment, workspace: Workspace
) -> None:
    teacher = Prompts("query text: ", "passage of: ")
    setting = prepare(changed(given, {"sentences.role": role}), workspace, Embedding(local=True)).setting
    pairs = setting[Pairs]
    prompts = {column: store.stores[0].prompt for column, store in pairs.stores.items()}
    assert prompts == {"query": teacher.query, "passage": teacher.document, "negatives": teacher.document}
    mined = pairs.examples.origin
    assert isinstance(mined, Mined)
    queries, passages = mined.queries.stores[0], mined.passages.stores[0]
    assert (queries.prompt, passages.prompt) == (teacher.query, teacher.document)
    sentences = setting[Sentences]
    assert sentences.only_store.prompt == teacher.of(role)
    # What is stored is what stock sentence-transformers gives with that prompt.
    stock: Any = load_sentence_transformer(require_model(setting.teacher))
    texts = open_texts(workspace, sentences.store.texts)[np.arange(8)]
    expected = stock.encode([teacher.of(role) + text for text in texts])
    found = open_store(workspace, sentences.only_store).gather(np.arange(8))
    np.testing.assert_allclose(found, expected, atol=2e-3)

    (agreement,) = (each for each in setting.dev.evaluators if each.target is Agreement)
    model = Listener()
    agreement.build(workspace=workspace)(model)
    assert set(model.read) == {role}
    assert sentences.examples.role("text") == role
    shared = sentences.share(0.5)
    assert shared.examples.role("text") == role and shared.role == role


def test_the_student_reads_its_own_prompts_from_training_to_the_export(
    given: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    given = changed(given, {"sentences.role": DOCUMENT})
    setting = prepare(given, workspace, Embedding(local=True)).setting
    stage = mse.plan(mse.HyperParameters(batch_size=16), setting)
    (distil, *_) = stage.chain()
    tokenizer = Model("", path=given.teacher.name)
    tables = {
        column: table.prompt
        for each in stage.chain()
        for column, table in student_reader(each, tokenizer).tables(each.examples).items()
    }
    assert tables == {"text": "read ", "query": "find ", "passage": "read ", "negatives": "read "}
    folder = run(distil, workspace, where=Where(device="cpu", threads=1))
    (ids, offsets) = FastTokenizer(Path(given.teacher.name), 24)(
        ["read " + open_texts(workspace, distil.examples.columns["text"])[np.arange(1)][0]]
    )
    reader = student_reader(distil, setting.student.build().tokenizer)
    table = next(each for each in reader.tables(distil.examples).values())
    np.testing.assert_array_equal(np.load(workspace.path(table) / "ids.npy")[: offsets[1]], ids)

    student = encoder_in(folder)
    assert (
        student.prompts == Prompts("find ", "read ") and read_manifest(folder)["prompts"]["query"] == "find "
    )
    texts = ["cat 1", "dog 2 house"]
    assert export_stage(folder, tmp_path / "export").parity > 0.9999
    assert read_folder(tmp_path / "export").prompts == student.prompts
    assert "encode_query" in (tmp_path / "export" / "README.md").read_text()
    stock = open_model(str(tmp_path / "export"), workspace, "cpu")
    np.testing.assert_allclose(stock.encode_query(texts), student.encode_query(texts), atol=1e-5)
    np.testing.assert_allclose(stock.encode_document(texts), student.encode_document(texts), atol=1e-5)
    assert not np.allclose(student.encode_query(texts), student.encode_document(texts), atol=1e-3)
    np.testing.assert_allclose(
        student.encode_query(texts), student.encode([f"find {text}" for text in texts]), atol=1e-6
    )


def test_search_encodes_queries_as_queries_and_passages_as_documents(workspace: Workspace) -> None:
    queries, passages = ["one cat", "two cats"], ["a dog", "a house", "a river"]
    first, second = write_texts(workspace, "q", queries), write_texts(workspace, "p", passages)
    collection = write_collection(workspace, "c", first, second, np.array([[0, 0, 1], [1, 2, 1]]))
    for wrap in (lambda model: model, FiniteEncoder):
        model = Listener()
        suite = DevSuite((spec(DocSearch, collection=collection),), select="docsearch_cosine_mrr@10")
        run_suite(suite, wrap(model), workspace)
        assert model.read == {QUERY: queries, DOCUMENT: passages}


def test_a_teacher_is_measured_with_the_prompts_of_the_experiment(given: Experiment) -> None:
    encoder = TeacherEncoder(given.teacher.finder.published(), 24, "cpu")
    texts = ["cat 1", "dog 2 house"]
    np.testing.assert_allclose(
        encoder.encode_query(texts), encoder.encode([f"query text: {t}" for t in texts])
    )
    np.testing.assert_allclose(
        encoder.encode_document(texts), encoder.encode([f"passage of: {t}" for t in texts])
    )


def test_evaluate_reads_the_teacher_as_the_experiment_does(given: Experiment, workspace: Workspace) -> None:
    found, plain = (
        source_of(given.teacher.name, each, workspace)
        for each in (given, changed(given, dict.fromkeys(PROMPTS)))
    )
    texts = ["cat 1", "dog 2 house"]
    expected = plain.open().encode([f"query text: {text}" for text in texts])
    np.testing.assert_allclose(found.open().encode_query(texts), expected, atol=1e-6)
    assert plain.model is not None and plain.identity() == plain.model.sha256 != found.identity()


def test_a_live_teacher_reads_with_the_prompts_of_the_teacher(
    given: Experiment, workspace: Workspace, tmp_path: Path
) -> None:
    """Those of the experiment, at the teacher's length, be they planned for a check or trained."""
    given = changed(given, {"sentences.role": QUERY, "student.max_length": 16})
    theirs = Reading(24, Prompts("query text: ", "passage of: "))
    hp = pkd.HyperParameters(batch_size=16)
    for setting in (
        given.of(given.teacher.finder.published()).sketch(),
        prepare(given, workspace, Embedding(local=True)).setting,
    ):
        assert setting.teacher_reading == theirs
        (distil, *_) = pkd.plan(hp, setting).chain()
        assert distil.live is not None and distil.live.reading == theirs
        assert (distil.max_length, distil.prompts) == (16, Prompts("find ", "read "))
    folder = run(distil, workspace, where=Where(device="cpu", threads=1))
    assert read_manifest(folder)["steps"] > 0
    student = student_reader(distil, setting.student.build().tokenizer)
    live = live_reader(distil, student)
    assert live is not None
    read = [live.tables(distil.examples)["text"], student.tables(distil.examples)["text"]]
    assert [(table.prompt, table.max_length) for table in read] == [("query text: ", 24), ("find ", 16)]
    assert all(workspace.finished(table) for table in read)

    excluded = tmp_path / "excluded"
    shutil.copytree(given.teacher.name, excluded)
    (pooling,) = excluded.glob("*_Pooling/config.json")
    write_json(pooling, {**read_json(pooling), "include_prompt": False})
    left_out = changed(given, {"teacher.name": str(excluded)}).teacher.finder.published()
    with pytest.raises(BadInput, match="a live teacher must pool the tokens of its prompt too"):
        pkd.check(hp, setting.student, left_out)
    pkd.check(hp, setting.student, replace(left_out, prompts=Prompts()))


def test_published_collections_are_read_in_their_roles(tmp_path: Path) -> None:
    folder = tmp_path / "retrieval" / "cats"
    (folder / "qrels").mkdir(parents=True)
    queries, passages = {"q1": "one cat", "q2": "two cats"}, {"p1": "a dog", "p2": "a house"}
    for name, texts in (("queries", queries), ("corpus", passages)):
        rows = (json.dumps({"_id": key, "title": "", "text": text}) for key, text in texts.items())
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tp1\t1\nq2\tp2\t1\n")
    (collection,), _ = find_collections(str(tmp_path))
    model = Listener()
    rank_collection(collection, model)
    assert model.read == {QUERY: list(queries.values()), DOCUMENT: list(passages.values())}


def test_prompts_come_from_the_folder_by_name_or_from_the_user(
    tiny_model: Path, tmp_path: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "prompted"
    shutil.copytree(tiny_model, folder)
    known = read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    named = {"query": "query: ", "passage": "passage: ", "sts": "sts: "}
    write_json(folder / SETTINGS, {**known, "prompts": named, "default_prompt_name": "sts"})

    def prompts(**given: str) -> Prompts | None:
        paths = {f"teacher.prompts.{role}": prompt for role, prompt in given.items()}
        chosen = changed(Experiment(), {"teacher.name": str(folder), **paths})
        assert experiment_of(as_mapping(chosen)) == chosen
        return chosen.teacher.finder.published().prompts

    assert prompts() == Prompts("query: ", "passage: ", "sts: ") == read_folder(folder).prompts
    assert prompts(plain="", query="@sts") == Prompts("sts: ", "passage: ", "")
    with pytest.raises(BadInput, match=r"`teacher.prompts.query` must be a prompt of .* Did you mean query"):
        prompts(query="@querry")
    loaded = open_model(str(folder), workspace, "cpu")
    for role, encoded in (("passage: ", loaded.encode_document), ("query: ", loaded.encode_query)):
        bare = load_sentence_transformer(replace(Model("", path=str(folder)), prompts=Prompts()))
        np.testing.assert_allclose(encoded(["a cat"]), bare.encode([f"{role}a cat"]), atol=1e-5)
    write_json(folder / SETTINGS, {"prompts": {}, "default_prompt_name": "stss"})
    with pytest.raises(BadInput, match="default prompt"):
        prompts()


@pytest.mark.parametrize("path", ["teacher.prompts.query", "student.prompts.document"])
def test_a_prompt_as_long_as_the_longest_text_is_refused(path: str, experiment: Experiment) -> None:
    long = changed(experiment, {path: "cat " * 15})
    with pytest.raises(BadInput, match=rf"{path} must be shorter"):
        long.of(long.teacher.finder.published()).sketch()
    changed(experiment, {path: "cat " * 12}).of(experiment.teacher.finder.published()).sketch()
    owner = path.partition(".")[0]
    changed(long, {f"{owner}.max_length": 32}).of(long.teacher.finder.published()).sketch()


def test_an_unknown_role_and_prompts_with_claims_are_refused() -> None:
    with pytest.raises(BadInput, match=r"sentences\.role in"):
        Sentences(role="passage")
    with pytest.raises(BadInput, match=r"student\.prompts must be left out"):
        Experiment(data=(Claims(path="claims"),), student=TransformerChoice(prompts=Prompts("a ")))


def test_what_was_made_without_prompts_keeps_its_name() -> None:
    """Fingerprints of the workspace's format 3: what has no prompts is not embedded again."""
    texts, model = TextTable("0" * 64), Model("1" * 64, "n", "/p")
    store = Store(texts, model)
    pairs = Examples({"query": texts, "passage": texts}, AllRows())
    mined = Examples({**pairs.columns, "negatives": texts}, Mined(pairs, store, store))
    search = spec(DocSearch, collection=Collection(texts, texts, "2" * 64))
    dev = DevSuite((spec(Agreement, store=store, pairs=500), search), select="x")
    found = [each.fingerprint for each in (store, TokenTable(texts, model, 128), dev, mined)]
    assert found == ["3c5475d9179bcd54", "bb08029f70c4c6b4", "ffdc278c80057796", "5c626afffd1191f7"]
    assert replace(store, teacher=replace(model, prompts=Prompts("a", "b"))).fingerprint == store.fingerprint
    changes: list[dict[str, Any]] = [{"prompt": "query: "}, {"teacher": replace(model, dimension=8)}]
    assert len({replace(store, **change).fingerprint for change in changes} | {store.fingerprint}) == 3
    by_role = [spec(Agreement, store=store, pairs=500, role=role) for role in (PLAIN, QUERY, DOCUMENT)]
    assert len({DevSuite((each,), "x").fingerprint for each in by_role}) == 3
