import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stillhouse.core.artifacts import Workspace, read_manifest, sha256_of, write_json
from stillhouse.core.errors import BadInput
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.store import (
    StoreEnsembleReader,
    StoreMixReader,
    StoreReader,
    open_store,
    verify_store,
)
from stillhouse.values.data import Store


@pytest.fixture
def folder(workspace: Workspace, store: Store) -> Path:
    build_stores(workspace, [store], local=True)
    return workspace.path(store)


def test_rows_are_gathered_in_any_order_and_shape(folder: Path) -> None:
    reader = StoreReader(folder)
    every = reader.gather(reader.rows)
    assert every.dtype == np.float32 and every.shape == (44, 32) and len(reader) == 44 and reader.dim == 32
    rows = np.random.default_rng(0).integers(0, 44, (7, 3))
    np.testing.assert_array_equal(reader.gather(rows), every[rows])
    assert reader.gather(np.array([], np.int64)).shape == (0, 32)


@pytest.mark.parametrize("row", [-1, 44])
def test_a_row_outside_the_table_is_refused(folder: Path, row: int) -> None:
    with pytest.raises(BadInput, match=r"\[0, 44\)"):
        StoreReader(folder).gather(np.array([3, row]))


def test_a_reader_is_pickled_without_its_data(folder: Path) -> None:
    reader = StoreReader(folder)
    vectors = reader.gather(np.arange(44))
    sent = pickle.dumps(reader)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent).gather(np.arange(44)), vectors)


def test_opening_ten_million_rows_is_fast(folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder)
    shards = 1221
    size = manifest["shards"][0]["bytes"]
    big = tmp_path / "big"
    big.mkdir()
    for index in range(shards):
        (big / f"part-{index:05d}.arrow").symlink_to(folder / "part-00000.arrow")
    described = [
        {**manifest["shards"][0], "name": f"part-{i:05d}.arrow", "first": i * 8192, "rows": 8192}
        for i in range(shards)
    ]
    rows = shards * 8192
    write_json(big / "manifest.json", {**manifest, "rows": rows, "table_rows": rows, "shards": described})
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        assert len(StoreReader(big)) == rows
        best = min(best, time.perf_counter() - start)
    assert size > 0 and best < 0.25


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def other_dtype(path: Path) -> None:
    with pa.ipc.open_file(str(path)) as reader:
        rows = reader.get_batch(0)["row"]
    values = pa.array(np.zeros(len(rows) * 16, np.float32))
    batch = pa.record_batch([rows, pa.FixedSizeListArray.from_arrays(values, 16)], names=["row", "embedding"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    manifest = read_manifest(path.parent)
    for shard in manifest["shards"]:
        if shard["name"] == path.name:
            shard.update(bytes=path.stat().st_size, sha256=sha256_of(path))
    write_json(path.parent / "manifest.json", manifest)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "truncated"),
        (Path.unlink, "missing"),
        (flip, "altered"),
        (other_dtype, "32 float16 values"),
    ],
)
def test_verify_reports_every_problem(folder: Path, damage: Callable[[Path], None], words: str) -> None:
    assert verify_store(folder) == []
    damage(folder / "part-00002.arrow")
    (problem,) = verify_store(folder)
    assert "part-00002" in problem and words in problem


def test_verify_compares_the_list_of_rows_set_aside(folder: Path) -> None:
    path = folder / "quarantine.json"
    path.write_text(path.read_text() + " ")
    assert verify_store(folder) == [
        "quarantine.json was altered: its bytes differ from those that were written"
    ]


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_an_incomplete_shard_is_refused_when_opened(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(folder / "part-00002.arrow")
    with pytest.raises(BadInput, match=r"part-00002.arrow is (truncated|missing).*builds what is missing"):
        StoreReader(folder)


def test_an_altered_shard_is_refused_when_read(folder: Path) -> None:
    flip(folder / "part-00002.arrow")
    reader = StoreReader(folder)
    reader.gather(np.arange(20))
    with pytest.raises(BadInput, match=r"part-00002.arrow must be as it was written"):
        reader.gather(np.array([25]))


def test_another_dtype_is_refused_when_read(folder: Path) -> None:
    other_dtype(folder / "part-00002.arrow")
    reader = StoreReader(folder)
    reader.gather(np.arange(20))
    with pytest.raises(BadInput, match="must hold vectors of 32 float16 values"):
        reader.gather(np.array([25]))


def test_verify_counts_rows_and_finds_unlisted_shards(folder: Path) -> None:
    manifest = read_manifest(folder)
    write_json(folder / "manifest.json", {**manifest, "rows": 43})
    (folder / "part-00009.arrow").write_bytes(b"")
    problems = "\n".join(verify_store(folder))
    assert "part-00009.arrow is not in the manifest" in problems
    assert "hold 44 rows, but the manifest says 43" in problems
    assert "the input rows are not" in problems


def test_an_unfinished_store_and_another_dtype_than_planned_are_refused(
    workspace: Workspace, store: Store, folder: Path
) -> None:
    manifest = read_manifest(folder)
    write_json(folder / "manifest.json", {**manifest, "dtype": "float32"})
    with pytest.raises(BadInput, match="dtype that the plan names"):
        open_store(workspace, store)
    (folder / "manifest.json").unlink()
    with pytest.raises(BadInput, match="unfinished"):
        open_store(workspace, store)


class Part:
    """A store that lacks some of its rows."""

    def __init__(self, rows: int, lacking: list[int]) -> None:
        self.dim, self.lacking = 2, np.array(lacking, np.int64)
        self.rows = np.setdiff1d(np.arange(rows), self.lacking)


def test_several_stores_know_the_rows_that_they_lack() -> None:
    """Rows with a vector and rows without are all rows, whether stores follow or complete each other."""
    one, two = Part(6, [1, 4]), Part(4, [0])
    mixed = StoreMixReader([one, two], [6, 4])  # type: ignore[list-item]
    assert mixed.lacking.tolist() == [1, 4, 6] and mixed.rows.tolist() == [0, 2, 3, 5, 7, 8, 9]
    both = StoreEnsembleReader([one, Part(6, [4, 5])], [0.5, 0.5])  # type: ignore[list-item]
    assert both.lacking.tolist() == [1, 4, 5] and both.rows.tolist() == [0, 2, 3]
