"""Search among a teacher's documents: read from a store, or encoded once and kept on the disk."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from small_experiment import sentences

from stillhouse.core.artifacts import Workspace, lock_of, locked
from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoder, FloatArray
from stillhouse.corpora.tables import write_collection, write_texts
from stillhouse.evaluation.asymmetric_search import AsymmetricEncoder, Beside, KeptDocuments
from stillhouse.evaluation.retrieval import DocSearch, unit
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.weights import resolve_model
from stillhouse.training.models import open_model
from stillhouse.values.data import Collection, Store

PASSAGES = sentences(40, 5)
QUERIES = [" ".join(reversed(text.split())) for text in PASSAGES[:10]]


class Recorded:
    """The teacher, which counts the texts that it encodes, and moves queries away from documents."""

    def __init__(self, model: Encoder) -> None:
        self.model, self.calls = model, list[int]()

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.calls.append(len(texts))
        return self.model.encode(texts)

    def encode_query(self, texts: Sequence[str]) -> FloatArray:
        return self.encode([f"where is {text}" for text in texts])

    def encode_document(self, texts: Sequence[str]) -> FloatArray:
        return self.encode(texts)


@pytest.fixture
def teacher(tiny_model: Path, workspace: Workspace) -> Encoder:
    model: Encoder = open_model(str(tiny_model), workspace, "cpu")
    return model


@pytest.fixture
def collection(workspace: Workspace) -> Collection:
    queries, passages = write_texts(workspace, "q", QUERIES), write_texts(workspace, "p", PASSAGES)
    qrels = np.array([[at, at, 1] for at in range(10)])
    return write_collection(workspace, "docs", queries, passages, qrels)


def stored(workspace: Workspace, collection: Collection, tiny_model: Path) -> Store:
    teacher = resolve_model(str(tiny_model))
    store = Store(collection.passages, teacher, max_length=32, compute="float32", dtype="float32")
    build_stores(workspace, [store], actors=1, threads=1, local=True, device="cpu")
    return store


class Student:
    """Vectors of the teacher's dimension that are not the teacher's."""

    def __init__(self, teacher: Encoder, dim: int = 32) -> None:
        self.teacher, self.turn = teacher, np.random.default_rng(0).standard_normal((32, dim))

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return self.teacher.encode(texts) + 0.4 * unit(self.teacher.encode(texts) @ self.turn)


def test_queries_search_the_stored_documents(
    workspace: Workspace, collection: Collection, teacher: Encoder, tiny_model: Path
) -> None:
    store, student = stored(workspace, collection, tiny_model), Student(teacher)
    both = DocSearch(collection, workspace, documents=store)
    figures, items = both.itemised(student)
    plain = DocSearch(collection, workspace)(student)
    assert {name: figures[name] for name in plain} == plain, "the symmetric figures stay as they are"
    asymmetric = DocSearch(collection, workspace)(AsymmetricEncoder(student, kept(workspace, teacher)))
    for name in ("mrr@10", "ndcg@10", "recall@1", "recall@10", "recall@100"):
        figure = f"docsearch_asymmetric_cosine_{name}"
        assert figures[figure] == pytest.approx(asymmetric[f"docsearch_cosine_{name}"]), name
        assert figure in items
    assert figures["docsearch_asymmetric_cosine_mrr@10"] != figures["docsearch_cosine_mrr@10"]
    assert both.asymmetric(teacher)[0]["docsearch_asymmetric_cosine_mrr@10"] == pytest.approx(
        plain_figure(collection, workspace, teacher)
    )
    assert both.counts() == {"docsearch": 10, "docsearch_asymmetric": 10}


def plain_figure(collection: Collection, workspace: Workspace, model: Encoder) -> float:
    return DocSearch(collection, workspace)(model)["docsearch_cosine_mrr@10"]


def kept(workspace: Workspace, model: Encoder) -> KeptDocuments:
    return KeptDocuments(model, "teacher", workspace)


def test_a_sample_of_the_passages_reads_its_own_rows(
    workspace: Workspace, collection: Collection, teacher: Encoder, tiny_model: Path
) -> None:
    """As a pool of dev passages does, whose rows are other ones."""
    store = stored(workspace, collection, tiny_model)
    rows = [31, 2, 0, 39, 7, 4, 25, 1, 3, 5, 6, 8, 9]
    sample = write_texts(workspace, "sample", [PASSAGES[row] for row in rows], deduplicate=False)
    qrels = np.array([[at, rows.index(at), 1] for at in range(10)])
    pool = write_collection(workspace, "pool", collection.queries, sample, qrels)
    own = Store(sample, store.teacher, max_length=32, compute="float32", dtype="float32")
    build_stores(workspace, [own], actors=1, threads=1, local=True, device="cpu")
    student = Student(teacher)
    expected = DocSearch(pool, workspace, documents=own)(student)
    assert DocSearch(pool, workspace, documents=store)(student) == pytest.approx(expected)
    other = write_texts(workspace, "other", [*PASSAGES[:12], "nowhere to be found"])
    strange = write_collection(workspace, "strange", collection.queries, other, qrels[:3])
    with pytest.raises(BadInput, match=r"those of the collection's passages, but got without=1"):
        DocSearch(strange, workspace, documents=store)


def test_a_model_of_another_dimension_has_no_such_figures(
    workspace: Workspace, collection: Collection, tiny_model: Path
) -> None:
    class Narrow:
        def encode(self, texts: Sequence[str]) -> FloatArray:
            return np.array([[len(text), 1.0, text.count("a")] for text in texts], np.float32)

    evaluator = DocSearch(collection, workspace, documents=stored(workspace, collection, tiny_model))
    assert not any("asymmetric" in name for name in evaluator(Narrow()))


def test_documents_are_encoded_once(workspace: Workspace, teacher: Encoder) -> None:
    model = Recorded(teacher)
    documents = kept(workspace, model)
    first = documents.encode_document(PASSAGES[:5])
    np.testing.assert_array_equal(documents.encode_document(PASSAGES[:5]), first)
    np.testing.assert_array_equal(first, teacher.encode(PASSAGES[:5]))
    assert (model.calls, documents.encoded) == ([5], 5)
    other = kept(workspace, model)
    other.encode_document(PASSAGES[:5])
    assert model.calls == [5], "another command reads the same vectors"
    joined = [PASSAGES[0] + PASSAGES[1], *PASSAGES[2:5]]
    assert len(documents.encode_document(joined)) == 4 and model.calls == [5, 4]
    (file, _) = sorted(documents.folder.glob("*.npy"), key=lambda path: path.stat().st_mtime_ns)
    file.write_bytes(file.read_bytes()[:-40])
    np.testing.assert_array_equal(documents.encode_document(PASSAGES[:5]), first)
    assert model.calls == [5, 4, 5], "damaged vectors are encoded again"
    elsewhere = KeptDocuments(model, "another teacher", workspace)
    elsewhere.encode_document(PASSAGES[:5])
    assert model.calls == [5, 4, 5, 5], "vectors of one model are never those of another"
    with locked(lock_of(documents.folder)):
        removing = threading.Thread(target=documents.remove)
        removing.start()
        removing.join(0.5)
        assert documents.folder.exists(), "another command is writing there"
    removing.join(60)
    assert not documents.folder.exists() and elsewhere.folder.exists()


def test_roles_go_to_their_models(workspace: Workspace, teacher: Encoder) -> None:
    student = Recorded(teacher)
    both = AsymmetricEncoder(student, kept(workspace, teacher))
    np.testing.assert_array_equal(both.encode_query(["cat"]), teacher.encode(["where is cat"]))
    np.testing.assert_array_equal(both.encode_document(["cat"]), teacher.encode(["cat"]))
    with pytest.raises(BadInput, match="texts without a role"):
        both.encode(["cat"])


def test_shares_are_those_of_the_teacher() -> None:
    one = Beside(teacher=0.5, symmetric=0.4, asymmetric=0.45)
    assert one.symmetric_share == pytest.approx(0.8) and one.asymmetric_share == pytest.approx(0.9)
    assert Beside(0.0, 0.1, 0.1).report()["asymmetric_share"] is None
