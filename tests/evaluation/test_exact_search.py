import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.evaluation.search import exact as module
from stillhouse.evaluation.search.exact import (
    QUERY_BLOCK,
    TILE,
    Ranking,
    merge,
    search,
    search_stream,
    shards,
)
from stillhouse.evaluation.search.indexes import search_passages
from stillhouse.evaluation.search.top_k import ids_of, keys_of, scores_of

Floats = npt.NDArray[np.float32]


def random_unit(rows: int, dim: int, seed: int) -> Floats:
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def whole_numbers(rows: int, dim: int, seed: int) -> Floats:
    """Draw vectors with few distinct values: products are exact and nearly every score is tied."""
    return np.random.default_rng(seed).integers(-1, 2, (rows, dim)).astype(np.float32)


def searched(index: str, queries: Floats, passages: Floats, k: int) -> Ranking:
    return search(queries, passages, k) if index == "exact" else search_passages(index, passages, queries, k)


def by_hand(queries: Floats, passages: Floats, k: int) -> npt.NDArray[np.int64]:
    scores = queries.astype(np.float64) @ passages.T.astype(np.float64)
    ids = np.broadcast_to(np.arange(len(passages)), scores.shape)
    return np.asarray(np.lexsort((ids, -scores), axis=1)[:, :k])


@each_row("index", ["exact", "flat"])
@each_row("k", [1, 7, 100])
def test_ties_are_ranked_by_id_at_every_edge(index: str, k: int) -> None:
    passages, queries = whole_numbers(TILE + 77, 4, 0), whole_numbers(QUERY_BLOCK + 9, 4, 1)
    scores, ids = searched(index, queries, passages, k)
    np.testing.assert_array_equal(ids, by_hand(queries, passages, k))
    np.testing.assert_array_equal(scores, np.take_along_axis(queries @ passages.T, ids, axis=1))


@each_row("k", [1, 10, 100])
def test_same_ids_as_faiss(k: int) -> None:
    import faiss

    passages, queries = random_unit(5000, 64, 0), random_unit(50, 64, 1)
    flat = faiss.IndexFlatIP(64)
    flat.add(passages)
    expected_scores, expected = flat.search(queries, k)
    for index in ("exact", "flat"):
        scores, ids = searched(index, queries, passages, k)
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_allclose(scores, expected_scores, atol=1e-6)


@each_row("parts", [1, 2, 3, 9])
def test_sharded_equals_unsharded_bit_for_bit(parts: int) -> None:
    passages, queries = random_unit(3 * TILE + 1, 48, 0), random_unit(270, 48, 1)
    whole = search(queries, passages, 20)
    pieces = [
        search(queries, passages[start:stop].copy(), 20, start)
        for start, stop in shards(len(passages), parts)
    ]
    for order in (pieces, pieces[::-1]):
        scores, ids = merge(order, 20)
        assert scores.tobytes() == whole[0].tobytes()
        assert ids.tobytes() == whole[1].tobytes()


def test_memory_layout_of_the_passages_changes_nothing() -> None:
    passages, queries = random_unit(500, 33, 0), random_unit(5, 33, 1)
    moved = np.empty(passages.size + 1, np.float32)[1:].reshape(passages.shape)
    moved[:] = passages
    strided = np.repeat(passages, 2, axis=0)[::2]
    expected = search(queries, passages, 10)
    for other in (moved, strided, np.asfortranarray(passages)):
        assert search(queries, other, 10)[0].tobytes() == expected[0].tobytes()


@each_row("rows", [3, TILE + 2])
@each_row("index", ["exact", "flat"])
def test_fewer_passages_than_k(index: str, rows: int) -> None:
    passages, queries = whole_numbers(rows, 3, 0), whole_numbers(4, 3, 1)
    scores, ids = searched(index, queries, passages, 10_000)
    assert scores.shape == ids.shape == (4, rows)
    np.testing.assert_array_equal(ids, by_hand(queries, passages, rows))


def test_a_first_tile_shorter_than_k_keeps_the_later_ones() -> None:
    passages, queries = random_unit(TILE + 500, 8, 0), random_unit(3, 8, 1)
    _, ids = search(queries, passages, TILE + 100)
    np.testing.assert_array_equal(ids[:, :50], by_hand(queries, passages, 50))
    assert all(len(set(row)) == TILE + 100 for row in ids.tolist())


def test_zeros_of_both_signs_tie() -> None:
    passages = np.array([[-0.0], [0.0], [-1.0], [1.0]], np.float32)
    _, ids = search(np.array([[1.0], [-1.0]], np.float32), passages, 4)
    assert ids.tolist() == [[3, 0, 1, 2], [2, 0, 1, 3]]


def test_negative_scores_and_half_precision(tmp_path: Path) -> None:
    stored = np.memmap(tmp_path / "vectors", np.float16, "w+", shape=(50, 8))
    stored[:] = -np.abs(random_unit(50, 8, 0))
    queries = np.abs(random_unit(4, 8, 1))
    _, ids = search(queries, stored, 5)
    np.testing.assert_array_equal(ids, by_hand(queries, np.asarray(stored, np.float32), 5))


@each_row("passages", [0, 1, TILE, TILE + 1, 5 * TILE - 1])
@each_row("parts", [1, 2, 4])
def test_shards_are_whole_tiles_that_cover_all(passages: int, parts: int) -> None:
    ranges = shards(passages, parts) if passages else []
    assert [row for start, stop in ranges for row in (start, stop - 1)] == sorted(
        row for start, stop in ranges for row in (start, stop - 1)
    )
    assert sum(stop - start for start, stop in ranges) == passages
    assert all(start % TILE == 0 and stop > start for start, stop in ranges)


def test_thread_count_is_restored() -> None:
    before = torch.get_num_threads()
    search(random_unit(2, 4, 0), random_unit(9, 4, 1), 2, threads=before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(value: float) -> None:
    passages, queries = random_unit(TILE + 30, 4, 0), random_unit(3, 4, 1)
    passages[TILE + 7, 2] = value
    with pytest.raises(BadInput, match=rf"passage vectors must be finite, but 1 .*in row {TILE + 7}"):
        search(queries, passages, 2)
    queries[1, 0] = value
    with pytest.raises(BadInput, match="query vectors must be finite"):
        search(queries, passages, 2)


def test_bad_arguments() -> None:
    with pytest.raises(BadInput, match="the same dimension"):
        search(random_unit(2, 4, 0), random_unit(2, 5, 0), 1)
    with pytest.raises(BadInput, match="k >= 1"):
        search(random_unit(2, 4, 0), random_unit(2, 4, 0), 0)
    with pytest.raises(BadInput, match="needs queries and passages"):
        search(random_unit(2, 4, 0), random_unit(1, 4, 0)[:0], 1)


def test_the_error_for_missing_faiss_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BadInput, match="extra `cpu`"):
        search_passages("flat", random_unit(2, 4, 0), random_unit(2, 4, 0), 1)


def test_scores_can_be_decoded_from_keys() -> None:
    scores = torch.tensor([[3.5, -2.25, 0.0, 1e-30, -1e30]])
    ids = torch.tensor([[0, 5, 2**32 - 1, 7, 9]])
    keys = keys_of(scores, ids)
    assert torch.equal(scores_of(keys), scores)
    assert torch.equal(ids_of(keys), ids)


def test_the_thread_count_applies_to_the_search_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    searching: list[int] = []
    before = torch.get_num_threads()
    # Work on a tile belongs to the search; otherwise two shards would compete for cores.
    for part in ("require_finite", "_copied", "linear"):
        whole = getattr(module, part)

        def recorded(*given: Any, whole: Any = whole) -> Any:
            searching.append(torch.get_num_threads())
            return whole(*given)

        monkeypatch.setattr(module, part, recorded)

    def encoded() -> Iterator[Floats]:
        for start in range(0, 3 * TILE, TILE):
            seen.append(torch.get_num_threads())
            yield np.random.default_rng(start).standard_normal((TILE, 4)).astype(np.float32)

    try:
        torch.set_num_threads(2)
        search_stream(np.eye(4, dtype=np.float32), encoded(), 3, threads=1)
        assert seen == [2, 2, 2] and torch.get_num_threads() == 2
        # The queries are checked and copied first.
        assert searching == [2, 2] + 3 * [1, 1, 1]
    finally:
        torch.set_num_threads(before)
