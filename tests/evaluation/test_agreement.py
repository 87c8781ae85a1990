from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.corpora.tables import open_texts, write_texts
from stillhouse.evaluation import agreement
from stillhouse.evaluation.agreement import Agreement
from stillhouse.evaluation.retrieval import LocalSearch
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.store import open_store
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Store

NOUNS = "cat dog mat house river sun moon model vector matrix array".split()
VERBS = "reads writes loads saves returns sorts finds".split()


@pytest.fixture
def store(workspace: Workspace, tiny_model: Path) -> Store:
    sentences = [f"the {a} {verb} a {b}" for a in NOUNS for verb in VERBS[:3] for b in NOUNS[:2] if a != b]
    texts = write_texts(workspace, "held-out", sentences, rows_per_shard=25)
    store = Store(texts=texts, teacher=resolve_model(str(tiny_model)), dtype="float32")
    build_stores(workspace, [store], local=True)
    return store


class Remembers:
    """Returns the stored vectors, and records the texts."""

    def __init__(self, workspace: Workspace, store: Store, noise: float = 0) -> None:
        reader, texts = open_store(workspace, store), open_texts(workspace, store.texts)
        vectors = reader.gather(reader.rows)
        vectors += noise * np.random.default_rng(0).standard_normal(vectors.shape).astype(np.float32)
        self.vectors = dict(zip(texts[reader.rows], vectors, strict=True))
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> FloatArray:
        self.encoded = list(texts)
        return np.stack([self.vectors[text] for text in texts])


def test_the_teacher_agrees_with_itself(workspace: Workspace, store: Store, tiny_model: Path) -> None:
    evaluator = Agreement(store, workspace, pairs=60)
    assert evaluator(Remembers(workspace, store))["agreement_spearman_cosine"] == 1.0
    teacher = load_sentence_transformer(resolve_model(str(tiny_model)))
    assert evaluator(teacher)["agreement_spearman_cosine"] > 0.999


def test_the_figure_is_the_rank_correlation_of_its_pairs(workspace: Workspace, store: Store) -> None:
    evaluator = Agreement(store, workspace, pairs=60, name="kept")
    teacher, student = Remembers(workspace, store), Remembers(workspace, store, noise=0.05)
    found = evaluator(student)
    sides = []
    for model in (teacher, student):
        vectors = np.stack([model.vectors[text] for text in student.encoded]).astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
        sides.append((vectors[evaluator.first] * vectors[evaluator.second]).sum(1))
    expected = stats.spearmanr(*sides).statistic
    assert found == {"kept_spearman_cosine": pytest.approx(expected, abs=1e-6)}
    assert 0 < expected < 0.999


def test_half_of_the_pairs_are_random_and_half_near(workspace: Workspace, store: Store) -> None:
    evaluator = Agreement(store, workspace, pairs=60)
    assert len(evaluator.first) == 60
    assert (evaluator.first != evaluator.second).all()
    assert len(evaluator.texts) == len(set(evaluator.texts)) <= 60
    vectors = np.stack(list(map(Remembers(workspace, store).vectors.__getitem__, evaluator.texts)))
    every = Remembers(workspace, store).vectors
    matrix = np.stack(list(every.values()))
    places = {text: row for row, text in enumerate(every)}
    for first, second in zip(evaluator.first[30:], evaluator.second[30:], strict=True):
        scores = matrix @ vectors[first]
        nearer = (scores > scores[places[evaluator.texts[second]]] + 1e-6).sum()
        assert nearer <= 10
    assert evaluator.teacher[30:].mean() > evaluator.teacher[:30].mean()


def test_pairs_depend_on_the_seed_alone(workspace: Workspace, store: Store) -> None:
    one, again, other = (Agreement(store, workspace, pairs=40, seed=seed) for seed in (1, 1, 2))
    assert one.texts == again.texts and one.first.tolist() == again.first.tolist()
    assert one.second.tolist() == again.second.tolist()
    assert one.texts != other.texts


def test_a_store_with_fewer_rows_than_pairs_and_a_large_one(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = len(open_store(workspace, store))
    assert len(Agreement(store, workspace, pairs=100_000).first) == 2 * rows
    monkeypatch.setattr(agreement, "POOL", 20)
    small = Agreement(store, workspace, pairs=100_000)
    assert len(small.first) == 40 and len(small.texts) <= 20


def test_equal_vectors_do_not_pair_a_text_with_itself(workspace: Workspace) -> None:
    vectors = np.repeat(np.eye(2, 4, dtype=np.float32), 30, axis=0)
    anchors = np.arange(60)
    found = agreement._neighbours(vectors, anchors, LocalSearch(), np.random.default_rng(0))
    assert (found != anchors).all()
    assert (found // 30 == anchors // 30).all()


def test_too_few_texts_are_refused(workspace: Workspace, store: Store) -> None:
    with pytest.raises(BadInput, match="pairs >= 4"):
        Agreement(store, workspace, pairs=2)
