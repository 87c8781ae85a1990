"""Vectors on disk: written in parts, resumed, and searched in shards bit for bit, or by an index."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.corpora.published.judged import Entry
from stillhouse.evaluation.search.exact import TILE, merge, search, search_stream, shards
from stillhouse.evaluation.search.index_options import parse_index
from stillhouse.evaluation.search.indexes import build_index, check_index, recall_of_exact, search_index
from stillhouse.evaluation.search.passage_vectors import PART, PassageVectors, part_path, write_vectors
from stillhouse.evaluation.search.sharded import search_files, search_shard

Floats = npt.NDArray[np.float32]
DIM = 32


def random_unit(rows: int, seed: int) -> Floats:
    """Draw vectors near a 12-dimensional subspace, as a model's vectors lie near a low-dimensional one."""
    draw = np.random.default_rng(seed)
    plane = np.random.default_rng(0).standard_normal((12, DIM))
    vectors = draw.standard_normal((rows, 12)) @ plane + 0.1 * draw.standard_normal((rows, DIM))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


class Table:
    """An encoder from row numbers to rows, which counts its calls and may stop like a killed process."""

    def __init__(self, vectors: Floats, stop_at: int | None = None) -> None:
        self.vectors, self.stop_at = vectors, stop_at
        self.encoded = self.most = 0

    def __call__(self, texts: list[str]) -> Floats:
        if self.stop_at is not None and self.encoded >= self.stop_at:
            raise KeyboardInterrupt
        self.encoded, self.most = self.encoded + len(texts), max(self.most, len(texts))
        return self.vectors[[int(text) for text in texts]]

    def passages(self) -> Iterator[Entry]:
        return (Entry(f"d{row}", str(row), row + 1) for row in range(len(self.vectors)))


def written(folder: Path, vectors: Floats) -> PassageVectors:
    table = Table(vectors)
    return write_vectors(folder, table.passages(), table)[0]


def test_parts_are_written_as_the_passages_stream_by(tmp_path: Path) -> None:
    table = Table(random_unit(2 * PART + 7, 1))
    files, ids = write_vectors(tmp_path, table.passages(), table)
    assert (files.rows, files.dim, table.most) == (2 * PART + 7, DIM, PART)
    assert ids.take([0, PART, 2 * PART + 6]).to_pylist() == ["d0", f"d{PART}", f"d{2 * PART + 6}"]
    blocks = list(files.blocks(TILE, PART + 3))
    assert all(isinstance(block, np.memmap) for block in blocks) and len(blocks) == 2
    np.testing.assert_array_equal(np.concatenate(blocks), table.vectors[TILE : PART + 3])
    rows = np.array([0, 5, PART - 1, PART, 2 * PART + 6])
    np.testing.assert_array_equal(files.gather(rows), table.vectors[rows])


def test_an_interrupted_run_resumes_and_repairs_damaged_parts(tmp_path: Path) -> None:
    vectors = random_unit(3 * PART, 1)
    killed = Table(vectors, stop_at=2 * PART)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(tmp_path, killed.passages(), killed)
    part_path(tmp_path, 0).write_bytes(b"torn")
    again = Table(vectors)
    files, _ = write_vectors(tmp_path, again.passages(), again)
    assert again.encoded == 2 * PART
    np.testing.assert_array_equal(np.concatenate(list(files.blocks())), vectors)


def test_vectors_of_another_dimension_are_refused(tmp_path: Path) -> None:
    files = written(tmp_path, random_unit(PART, 1))
    other = Table(random_unit(PART + 1, 1)[:, :8])
    with pytest.raises(BadInput, match=r"the same dimension, 32, but .* have 8"):
        write_vectors(tmp_path, other.passages(), other)
    with pytest.raises(BadInput, match=r"dimension of the passages, 32, but have 8"):
        search_files(random_unit(2, 0)[:, :8], files, 3)
    with pytest.raises(BadInput, match="dimension of the index"):
        search_index(build_index(parse_index("flat"), files), random_unit(2, 0)[:, :8], 3)


@each_row("rows", [PART, 2 * PART + TILE + 1, 3 * PART - 5])
def test_any_number_of_shards_equals_one_search_bit_for_bit(rows: int, tmp_path: Path) -> None:
    passages, queries = random_unit(rows, 1), random_unit(70, 2)
    # Equal passages far apart tie, whether in one shard or in two.
    passages[[3, TILE + 9, rows - 1]] = passages[0]
    files = written(tmp_path, passages)
    whole = search(queries, passages, 60, threads=1)
    assert whole[0].tobytes() == search_files(queries, files, 60)[0].tobytes()
    for parts in (2, 3, 4, 7):
        ranges = shards(rows, parts)
        found = [search_shard(queries, files, 60, *each) for each in reversed(ranges)]
        scores, ids = merge(found, 60)
        assert scores.tobytes() == whole[0].tobytes() and ids.tobytes() == whole[1].tobytes()


def test_a_stream_is_read_once_tile_by_tile() -> None:
    passages, queries, alive = random_unit(4 * TILE, 1), random_unit(3, 2), []

    def blocks() -> Iterator[Floats]:
        for start in range(0, len(passages), TILE):
            alive.append(start)
            yield passages[start : start + TILE]

    found = search_stream(queries, blocks(), 5)
    assert alive == [0, TILE, 2 * TILE, 3 * TILE]
    assert found[1].tobytes() == search(queries, passages, 5)[1].tobytes()
    with pytest.raises(BadInput, match="needs queries and passages"):
        search_stream(queries, [], 5)
    with pytest.raises(BadInput, match="dimension of the queries"):
        search_stream(queries, [passages[:, :4]], 5)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    files = written(tmp_path, random_unit(PART + 1, 1))
    part_path(tmp_path, 1).unlink()
    with pytest.raises(BadInput, match=r"part-00001.npy must be readable.*every node sees"):
        search_files(random_unit(2, 0), files, 3)


@each_row(
    ("text", "least"),
    [("flat", 1.0), ("hnsw:m=16,ef_construction=32,ef_search=64", 0.95), ("ivfpq:nbits=4,m=16,nlist=8", 0.5)],
)
def test_indexes_agree_with_exact_search(text: str, least: float, tmp_path: Path) -> None:
    files, queries = written(tmp_path, random_unit(PART + 500, 1)), random_unit(40, 2)
    exact = search_files(queries, files, 100)
    built = build_index(parse_index(text), files)
    (scores, ids), seconds = search_index(built, queries, 100)
    assert least <= recall_of_exact(ids, exact[1], 10) <= 1
    assert (np.diff(scores, axis=1) <= 0).all() and seconds > 0 and built.build_s > 0
    raw = 4 * files.rows * files.dim / 1e6
    assert {"flat": 1.0, "hnsw": 1.2, "ivfpq": 0.05}[text.partition(":")[0]] * raw < built.megabytes < 3 * raw
    assert bool(built.trained_on) == text.startswith("ivfpq")
    if text == "flat":
        # Two scores that differ by rounding alone may change places.
        np.testing.assert_allclose(scores, exact[0], atol=1e-6)


def test_recall_of_exact_by_hand() -> None:
    exact = np.array([[0, 1, 2], [5, 4, 3]])
    assert recall_of_exact(np.array([[2, 1, 9], [5, 4, 3]]), exact, 2) == pytest.approx((1 / 2 + 1) / 2)
    assert recall_of_exact(np.array([[2, 1, -1], [5, 4, 3]]), exact, 9) == pytest.approx((2 / 3 + 1) / 2)


@each_row(
    ("text", "message"),
    [
        ("hnws", "unknown index `hnws`. Did you mean hnsw"),
        ("hnsw:ef=3", "unknown parameter `ef` of hnsw. Known: ef_construction"),
        ("flat:m=3", "unknown parameter `m` of flat. It has no parameters"),
        ("hnsw:m=1", "2 <= m <= 512, a whole number"),
        ("ivfpq:nprobe=few", "nprobe <= .*nprobe='few'"),
    ],
)
def test_unknown_indexes_and_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_index(text)


def test_ivfpq_reports_its_minimum_size(tmp_path: Path) -> None:
    files = written(tmp_path, random_unit(900, 1))
    for text, message in (
        ("ivfpq", "39 .*nlist=.*nbits=8, passages=900.*too small to train"),
        ("ivfpq:nbits=4,nlist=64", "too small"),
        ("ivfpq:nbits=4,m=7", "m divides the dimension.*m=7, dimension=32"),
        ("ivfpq:nbits=4,train=50", "train >= 39"),
    ):
        with pytest.raises(BadInput, match=message):
            build_index(parse_index(text), files)


def test_a_gpu_index_without_a_gpu() -> None:
    import faiss

    if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus():
        pytest.skip("FAISS has a GPU here")
    with pytest.raises(BadInput, match=r"FAISS sees.*extra `gpu`"):
        check_index(parse_index("flat-gpu"))
