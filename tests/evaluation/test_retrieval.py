import logging
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from local_ray import local_ray
from patience import STUCK_S

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.types import FloatArray
from stillhouse.corpora.published.judged import Entry
from stillhouse.corpora.tables import write_collection, write_texts
from stillhouse.evaluation.retrieval import (
    DocSearch,
    LocalSearch,
    SearchPool,
    settled,
    start_search_pool,
    unit,
)
from stillhouse.evaluation.search import indexes
from stillhouse.evaluation.search.exact import TILE, Ranking, merge, shards
from stillhouse.evaluation.search.indexes import chosen_index
from stillhouse.evaluation.search.passage_vectors import write_vectors
from stillhouse.evaluation.search.sharded import search_files
from stillhouse.values.data import Collection

Floats = npt.NDArray[np.float32]


class Letters:
    """An encoder of letter counts: a query retrieves texts that share its letters."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[text.count(letter) for letter in "abcdefgh"] for text in texts], np.float32)


class Broken:
    def encode(self, texts: Sequence[str]) -> FloatArray:
        return np.full((len(texts), 3), np.nan, np.float32)


def random_vectors(rows: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, 24)).astype(np.float32)


def same(a: Ranking, b: Ranking) -> bool:
    return a[0].tobytes() == b[0].tobytes() and a[1].tobytes() == b[1].tobytes()


@pytest.fixture
def collection(workspace: Workspace) -> Collection:
    queries = write_texts(workspace, "queries", ["aaa a", "nothing to find", "bbb b", "ccc cd"])
    passages = write_texts(workspace, "passages", ["ab ab", "a a a", "b c", "dd dd", "c c d", "ee ee"])
    qrels = np.array([[0, 0, 1], [2, 2, 1], [2, 5, 1], [3, 4, 2], [1, 1, 0]])
    return write_collection(workspace, "docs", queries, passages, qrels)


def test_figures_by_hand(workspace: Workspace, collection: Collection) -> None:
    figures = DocSearch(collection, workspace)(Letters())
    # Squared distances of the unit vectors of queries and answers: a-ab, b-bc, b-ee, ccccd-ccd.
    apart = [2 - 2 / np.sqrt(2), 2 - 2 / np.sqrt(2), 2.0, 2 - 18 / np.sqrt(85)]
    assert figures.pop("docsearch_alignment") == pytest.approx(np.mean(apart), abs=1e-6)
    assert figures.pop("docsearch_uniformity") < 0
    # "aaa a" has its answer second; "bbb b" finds two equally near, of which the lower id comes first, and
    # its other answer is last; "ccc cd" has its answer first.
    assert figures == {
        "docsearch_cosine_mrr@10": pytest.approx((1 / 2 + 1 / 2 + 1) / 3),
        "docsearch_cosine_ndcg@10": pytest.approx(
            (1 / np.log2(3) + (1 / np.log2(3) + 1 / np.log2(7)) / (1 + 1 / np.log2(3)) + 1) / 3
        ),
        "docsearch_cosine_recall@1": pytest.approx(1 / 3),
        "docsearch_cosine_recall@10": pytest.approx(1),
        "docsearch_cosine_recall@100": pytest.approx(1),
    }


def test_queries_without_an_answer_are_left_out(workspace: Workspace, collection: Collection) -> None:
    evaluator = DocSearch(collection, workspace, k=10, name="manual")
    assert evaluator.query_rows.tolist() == [0, 2, 3]
    assert list(evaluator(Letters())) == [
        *(f"manual_cosine_{figure}" for figure in ("mrr@10", "ndcg@10", "recall@1", "recall@10")),
        *(f"manual_{figure}" for figure in ("alignment", "uniformity")),
    ]


def test_vector_norms_do_not_matter(workspace: Workspace, collection: Collection) -> None:
    class Longer(Letters):
        def encode(self, texts: Sequence[str]) -> FloatArray:
            return super().encode(texts) * np.exp2(np.arange(len(texts)))[:, None]

    evaluator = DocSearch(collection, workspace)
    assert evaluator(Longer()) == evaluator(Letters())
    assert unit(np.array([[3.0, 4.0], [0, 0]])).tolist() == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))


def test_a_diverged_model_and_a_bad_depth_are_refused(workspace: Workspace, collection: Collection) -> None:
    with pytest.raises(BadInput, match="finite"):
        DocSearch(collection, workspace)(Broken())
    with pytest.raises(BadInput, match="k >= 10"):
        DocSearch(collection, workspace, k=5)


def test_without_ray_a_pool_searches_in_process() -> None:
    passages, queries = random_vectors(TILE + 5, 0), random_vectors(4, 1)
    assert same(SearchPool((), 1).search(passages, queries, 5), LocalSearch(1).search(passages, queries, 5))


@pytest.mark.ray
@pytest.mark.long
def test_a_pool_equals_one_process_bit_for_bit(caplog: pytest.LogCaptureFixture) -> None:
    """The ranking is the same with two actors, in a remote trial, and with slow or dead actors."""
    import ray

    passages, queries = random_vectors(3 * TILE + 100, 0), random_vectors(300, 1)
    expected = LocalSearch(1, "exact").search(passages, queries, 50)
    with local_ray(1) as folder:
        check_pool(ray, passages, queries, expected, caplog)
        check_shards(folder, passages, queries, expected)


def check_pool(
    ray: Any, passages: Floats, queries: Floats, expected: Ranking, caplog: pytest.LogCaptureFixture
) -> None:
    pool = start_search_pool(2, 1, index="exact")
    pool.deadline = 240
    assert same(pool.search(passages, queries, 50), expected)
    assert not pool.broken
    flat = start_search_pool(1, 1, index="flat")
    flat.deadline = 240
    assert flat.search(passages, queries, 50)[1].tobytes() == expected[1].tobytes()
    assert not flat.broken

    # A trial that holds the only CPU receives the handles, since the actors reserve no CPU.
    trial = ray.remote(lambda held: held.search(passages, queries, 50))
    assert same(ray.get(trial.remote(pool), timeout=STUCK_S), expected)

    slow: SearchPool = SearchPool(pool.actors, 1, "exact", deadline=0.0)
    caplog.set_level(logging.WARNING)
    assert same(slow.search(passages, queries, 50), expected)
    assert slow.broken and "GetTimeoutError" in caplog.text

    caplog.clear()
    ray.kill(pool.actors[1])
    for _ in range(3):
        assert same(pool.search(passages, queries, 50), expected)
    assert pool.broken
    assert len(caplog.records) == 1 and "searching in this process" in caplog.text


def check_shards(folder: Path, passages: Floats, queries: Floats, expected: Ranking) -> None:
    """Check tasks that memory-map their tiles."""
    entries = (Entry(str(row), str(row), row) for row in range(len(passages)))
    files, _ = write_vectors(folder / "vectors", entries, lambda texts: passages[[int(row) for row in texts]])
    assert same(search_files(queries, files, 50, actors=2), expected)


def test_faiss_ranks_as_torch_does_ties_included_however_sharded() -> None:
    passages, queries = unit(random_vectors(3 * TILE + 100, 0)), unit(random_vectors(300, 1))
    passages = np.concatenate([passages, passages[:500], passages[:500]])  # Equal, or equal to 2e-7.
    passages[-250:] *= np.float32(1 + 2e-7)
    one = settled(LocalSearch(1, "exact").search(passages, queries, 58), queries, passages)
    other = settled(LocalSearch(1, "flat").search(passages, queries, 58), queries, passages)
    parts = [
        LocalSearch(1, "flat").search(passages[start:stop], queries, 58)
        for start, stop in shards(len(passages), 3)
    ]
    shifted = [
        (scores, ids + start)
        for (scores, ids), (start, _) in zip(parts, shards(len(passages), 3), strict=True)
    ]
    merged = settled(merge(shifted, 58), queries, passages)
    for scores, ids in (other, merged):
        np.testing.assert_array_equal(ids[:, :50], one[1][:, :50])
        np.testing.assert_allclose(scores[:, :50], one[0][:, :50], atol=1e-6)


def test_a_gpu_ranks_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    import faiss

    devices: list[int] = []

    def on_device(resources: object, device: int, index: Any) -> Any:
        devices.append(device)
        return index

    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", on_device, raising=False)
    passages, queries = unit(random_vectors(TILE, 0)), unit(random_vectors(30, 1))
    found = LocalSearch(1, "flat-gpu:device=1").search(passages, queries, 20)
    exact = LocalSearch(1, "exact").search(passages, queries, 20)
    assert devices == [1] and found[1].tobytes() == exact[1].tobytes()


def test_an_index_that_misses_passages_says_how_many(workspace: Workspace, collection: Collection) -> None:
    exact = DocSearch(collection, workspace)(Letters())
    figures = DocSearch(collection, workspace, index="hnsw:m=16")(Letters())
    assert 0 < figures.pop("docsearch_cosine_recall_of_exact@10") <= 1
    assert figures.keys() == exact.keys()
    plain = spec(DocSearch, collection=collection)
    assert fingerprint(plain) != fingerprint(spec(DocSearch, collection=collection, index="hnsw"))


def test_auto_takes_faiss_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, chosen in (("AMD EPYC 9R14", ["flat", "exact"]), ("Intel(R) Xeon(R)", ["exact", "exact"])):
        monkeypatch.setattr(indexes, "describe_machine", lambda threads, cpu=cpu: {"cpu": cpu})
        assert [chosen_index("auto", threads)[0] for threads in (1, 2)] == chosen
    assert chosen_index("exact", 1)[0] == "exact"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert chosen_index("auto", 1) == ("exact", "since FAISS is not installed")


def test_a_pool_keeps_its_settings_when_pickled() -> None:
    pool: SearchPool = pickle.loads(pickle.dumps(SearchPool((), 3, "flat", 7.0)))
    assert (pool.threads, pool.index, pool.deadline, pool.broken) == (3, "flat", 7.0, False)


def test_a_pool_refuses_values_out_of_range() -> None:
    with pytest.raises(BadInput, match="actors >= 1"):
        start_search_pool(0, 1)
    with pytest.raises(BadInput, match="threads >= 1"):
        start_search_pool(1, 0)
    with pytest.raises(BadInput, match="unknown index `tree`"):
        start_search_pool(1, 1, index="tree")
