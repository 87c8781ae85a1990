"""Stores imported from files of vectors: the same bytes as the teacher's own, and bad files refused."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace, read_json, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.corpora.tables import open_texts, write_texts
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.embedding import build_stores
from stillhouse.teachers.kinds.files import Files
from stillhouse.teachers.store import open_store, verify_store
from stillhouse.teachers.store_admin import list_stores
from stillhouse.teachers.vector_files import FilesEncoder, NoVector, find_vectors
from stillhouse.values.data import Store, VectorFiles

Vectors = npt.NDArray[np.float32]


def table(texts: list[str], vectors: Any, **columns: list[Any]) -> pa.Table:
    """A table with texts and vectors, each a fixed-size list if they are an array."""
    if isinstance(vectors, np.ndarray):
        flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
        vectors = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.table({"text": texts, "embedding": vectors, **columns})


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


@pytest.fixture
def native(workspace: Workspace, store: Store) -> tuple[list[str], Vectors]:
    """The texts of a store, and the vectors that its teacher gave them."""
    build_stores(workspace, [store], local=True)
    reader = open_store(workspace, store)
    return list(open_texts(workspace, store.texts)), reader.gather(reader.rows)


@pytest.fixture
def random_files(tmp_path: Path) -> Callable[..., str]:
    """Write random unit vectors of some texts to a Parquet file, and return its path."""

    def write(texts: list[str], dim: int = 4, **columns: list[Any]) -> str:
        vectors = np.random.default_rng(len(texts)).normal(size=(len(texts), dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        path = tmp_path / f"random-{len(list(tmp_path.glob('random-*')))}.parquet"
        pq.write_table(table(texts, vectors, **columns), path)
        return str(path)

    return write


def write_parquet(texts: list[str], vectors: Vectors, folder: Path) -> str:
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = [texts[row] for row in order]
    half = len(texts) // 2
    pq.write_table(table(shuffled[:half], vectors[order[:half]]), folder / "a.parquet")
    pq.write_table(table(shuffled[half:], vectors[order[half:]]), folder / "b.parquet")
    return str(folder / "*.parquet")


def write_half_precision(texts: list[str], vectors: Vectors, folder: Path) -> str:
    lists = pa.array(list(vectors.astype(np.float16)), pa.list_(pa.float16()))
    feather.write_feather(pa.table({"sentence": texts, "vector": lists}), folder / "vectors.feather")
    return str(folder)


def write_stream(texts: list[str], vectors: Vectors, folder: Path) -> str:
    lists = pa.array(vectors.astype(np.float64).tolist(), pa.large_list(pa.float64()))
    content = pa.table(
        {"content": pa.array(texts, pa.large_string()), "vectors": lists, "id": range(len(texts))}
    )
    with pa.ipc.new_stream(str(folder / "data.arrow"), content.schema) as writer:
        writer.write_table(content, max_chunksize=7)
    return str(folder / "data.arrow")


@pytest.mark.parametrize("write", [write_parquet, write_half_precision, write_stream])
def test_an_imported_store_has_the_bytes_of_the_native_one(
    workspace: Workspace,
    store: Store,
    native: tuple[list[str], Vectors],
    tmp_path: Path,
    write: Callable[[list[str], Vectors, Path], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts, vectors = native
    folder = tmp_path / "vectors"
    folder.mkdir()
    source = write([*texts, "of no table"], np.concatenate([vectors, vectors[:1]]), folder)
    teacher = find_vectors(source)
    assert teacher.normalize and teacher.dimension == 32 and teacher.name.startswith("vectors of ")
    imported = Store(store.texts, teacher)
    seen: list[tuple[int, int]] = []
    capsys.readouterr()
    build_stores(workspace, [imported], local=True, progress=lambda *now: seen.append(now[:2]))
    assert "45 vectors read, 1 of other texts" in capsys.readouterr().err
    assert seen == [(10, 44), (20, 44), (30, 44), (40, 44), (44, 44)]
    assert verify_store(workspace.path(imported)) == []
    assert not list(workspace.path(imported).glob(".*"))
    reader, other = open_store(workspace, imported), open_store(workspace, store)
    np.testing.assert_array_equal(reader.gather(reader.rows), other.gather(other.rows))
    manifest, own = (read_manifest(workspace.path(each)) for each in (imported, store))
    same = ("rows", "dim", "dtype", "table_rows", "input_rows", "duplicates", "quarantined")
    assert {name: manifest[name] for name in same} == {name: own[name] for name in same}
    assert manifest["teacher"] == {"name": teacher.name, "sha256": teacher.sha256}
    assert {each.teacher for each in list_stores(workspace)} == {teacher.name, own["teacher"]["name"]}


def test_a_killed_import_continues_with_the_missing_shards(
    workspace: Workspace, store: Store, native: tuple[list[str], Vectors], tmp_path: Path
) -> None:
    imported = Store(store.texts, find_vectors(write_parquet(*native, tmp_path)))
    build_stores(workspace, [imported], local=True)
    folder = workspace.path(imported)
    whole = files(folder)
    for name in ("manifest.json", "part-00001.arrow", "part-00004.arrow"):
        (folder / name).unlink()
    (folder / ".import.abc.tmp").write_bytes(b"x")
    kept = (folder / "part-00000.arrow").stat().st_mtime_ns
    build_stores(workspace, [imported], local=True)
    assert files(folder) == whole and not list(folder.glob(".*"))
    assert (folder / "part-00000.arrow").stat().st_mtime_ns == kept
    assert read_manifest(folder)["rows_this_run"] == 14


def test_the_identity_is_that_of_the_contents(
    store: Store, random_files: Callable[..., str], tmp_path: Path
) -> None:
    one = find_vectors(random_files(["a", "b"]))
    moved = tmp_path / "moved.parquet"
    moved.write_bytes(Path(one.source).read_bytes())
    again = find_vectors(str(moved), name="others")
    assert Store(store.texts, one).fingerprint == Store(store.texts, again).fingerprint
    other = find_vectors(random_files(["a", "b", "c"]))
    changes: list[VectorFiles] = [
        other,
        find_vectors(one.source, normalize=False),
        find_vectors(one.source, dimension=3),
        find_vectors(one.source, incomplete=True),
        replace(one, role="query"),
    ]
    fingerprints = {Store(store.texts, each).fingerprint for each in (one, *changes)}
    assert len(fingerprints) == 6
    assert find_vectors(one.source, dimension=4) == one


def test_changed_files_are_refused(workspace: Workspace, random_files: Callable[..., str]) -> None:
    texts = write_texts(workspace, "few", ["a", "b"])
    path = random_files(["a", "b"])
    store = Store(texts, find_vectors(path))
    Path(random_files(["a", "b", "c"])).replace(path)
    with pytest.raises(BadInput, match=r"has changed since this run began"):
        build_stores(workspace, [store], local=True)


def test_lengths_decide_the_norm(workspace: Workspace, tmp_path: Path) -> None:
    texts = write_texts(workspace, "few", ["a", "b", "c"])
    vectors = np.array([[3, 4, 0], [0, 5, 12], [8, 0, 6]], np.float32)
    path = tmp_path / "long.parquet"
    pq.write_table(table(["a", "b", "c"], vectors), path)

    def imported(**given: Any) -> tuple[VectorFiles, Vectors]:
        teacher = find_vectors(str(path), **given)
        store = Store(texts, teacher, dtype="float32")
        build_stores(workspace, [store], local=True)
        return teacher, open_store(workspace, store).gather(np.arange(3))

    raw, found = imported()
    assert not raw.normalize and "3 dimensions, not normalised" in Files().remarks(TeacherChoice(), raw)[0]
    np.testing.assert_array_equal(found, vectors)
    unit, found = imported(normalize=True)
    assert unit.normalize
    np.testing.assert_allclose(found, vectors / np.array([[5], [13], [10]]), rtol=1e-6)
    np.testing.assert_array_equal(imported(dimension=2)[1], vectors[:, :2])
    np.testing.assert_allclose(imported(dimension=2, normalize=True)[1][1], [0, 1])
    short = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pq.write_table(table(["a", "b", "c"], short), path)
    cut, found = imported(dimension=2)
    assert cut.normalize and cut.dimension == 2
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    kept, found = imported(dimension=2, normalize=False)
    assert not kept.normalize
    np.testing.assert_allclose(found, short[:, :2])
    mixed = [f"text {row}" for row in range(1500)]
    lengths = np.ones((1500, 2), np.float32) / np.sqrt(2)
    lengths[1400] *= 2
    pq.write_table(table(mixed, lengths), path)
    with pytest.raises(BadInput, match=r"length 1 if the first ones have it.* has one of length 2\. Set"):
        imported()
    imported_texts = write_texts(workspace, "mixed", mixed)
    build_stores(workspace, [Store(imported_texts, find_vectors(str(path), normalize=False))], local=True)


def test_roles_have_vectors_of_their_own(workspace: Workspace, tmp_path: Path) -> None:
    texts = write_texts(workspace, "few", ["both", "any", "only a query"])
    path = tmp_path / "roles.parquet"
    rows = {
        "text": ["both", "both", "any", "only a query"],
        "embedding": [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]],
        "role": ["query", "document", None, "query"],
    }
    pq.write_table(pa.table(rows), path)
    teacher = find_vectors(str(path))
    assert teacher.columns == ("text", "embedding", "role")
    query = Store(texts, replace(teacher, role="query"), dtype="float32")
    build_stores(workspace, [query], local=True)
    found = open_store(workspace, query).gather(np.arange(3))
    np.testing.assert_allclose(found, [[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    document = Store(texts, replace(teacher, role="document", incomplete=True), dtype="float32")
    build_stores(workspace, [query, document], local=True)
    np.testing.assert_allclose(open_store(workspace, document).gather(np.arange(2)), [[0.0, 1.0], [0.6, 0.8]])
    (left_out,) = read_json(workspace.path(document) / "quarantine.json")
    assert left_out["row"] == 2 and "no vector" in left_out["reason"]
    with pytest.raises(BadInput, match=r"for the role 'document', but the text of 1 row \('only a query'\)"):
        build_stores(workspace, [Store(texts, replace(teacher, role="document"))], local=True)
    np.testing.assert_allclose(FilesEncoder(teacher).encode_document(["both"]), [[0, 1]])
    pq.write_table(pa.table({**rows, "role": ["query", "doc", "", ""]}), path)
    with pytest.raises(BadInput, match=r"role must be one of query, document.* has \['doc'\]"):
        build_stores(workspace, [Store(texts, find_vectors(str(path)))], local=True)


def test_texts_are_compared_as_they_are_cleaned(
    workspace: Workspace, random_files: Callable[..., str]
) -> None:
    texts = write_texts(workspace, "few", ["a  cat\tsat", "Ärger"])
    teacher = find_vectors(random_files([" a cat sat\n", "A\u0308rger"]))
    build_stores(workspace, [Store(texts, teacher)], local=True)
    assert FilesEncoder(teacher).encode(["a cat sat", "Ärger", "a cat sat"]).shape == (3, 4)
    with pytest.raises(NoVector, match=r"the text of 1 row \('ärger'\) has none"):
        FilesEncoder(teacher).encode(["a cat sat", "ärger"])


def rows_of(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


def without(vectors: list[Any]) -> Callable[[Path], None]:
    return rows_of(text=[f"text {row}" for row in range(len(vectors))], embedding=vectors)


NAN = float("nan")
GOOD = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
BAD: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "missing": (
        without(GOOD[:2]),
        r"every text must have a vector .* the text of 1 row \('text 2'\) of 3 in three has none.*"
        r"part-\*|corpora.*teacher\.incomplete=true",
    ),
    "twice": (
        rows_of(text=["text 0", "text 1", "text 2", "text 1"], embedding=[*GOOD, [0.6, 0.8]]),
        r"one vector, but the text of 1 row \('text 1'\) .* several that differ.*`role`",
    ),
    "not a number": (without([[1.0, 0.0], [NAN, 1.0], [0.6, 0.8]]), r"finite numbers.*1 row \('text 1'\)"),
    "infinite": (without([[1.0, 0.0], [0.0, 1.0], [0.0, float("inf")]]), r"finite.*1 row \('text 2'\)"),
    "only zeros": (without([[1.0, 0.0], [0.0, 0.0], [0.6, 0.8]]), r"1 row \('text 1'\).*only zeros"),
    "no vector": (without([[1.0, 0.0], None, [0.6, 0.8]]), r"finite.*1 row \('text 1'\).* or no vector"),
    "no number": (without([[1.0, 0.0], [0.0, 1.0], [None, 1.0]]), r"finite.*1 row \('text 2'\)"),
    "another dimension": (
        without([[1.0, 0.0], [0.0, 1.0], [1.0]]),
        r"one dimension, but .*of 1 and of 2 num",
    ),
}


@each_row("case", BAD)
def test_bad_rows_are_refused_before_a_shard_is_written(
    case: str, workspace: Workspace, tmp_path: Path
) -> None:
    write, message = BAD[case]
    texts = write_texts(workspace, "three", [f"text {row}" for row in range(3)], rows_per_shard=2)
    write(tmp_path / "bad.parquet")
    with pytest.raises(BadInput, match=message):
        build_stores(workspace, [Store(texts, find_vectors(str(tmp_path / "bad.parquet")))], local=True)
    assert not list((workspace.root / "stores").glob("*/*"))


def test_a_file_without_any_vector_is_refused(tmp_path: Path) -> None:
    vectors = pa.array([None, []], pa.list_(pa.float32()))
    pq.write_table(pa.table({"text": ["a", "b"], "embedding": vectors}), tmp_path / "none.parquet")
    with pytest.raises(BadInput, match="must hold vectors, but every file is empty or has none"):
        find_vectors(str(tmp_path / "none.parquet"))


def test_offsets_that_lead_out_of_the_file_are_refused(tmp_path: Path) -> None:
    """Arrow believes the offsets of a stream; what lies behind them is other memory, or none."""
    rows = table(["a", "b"], pa.array([[1.0, 0.0], [0.6, 0.8]], pa.list_(pa.float32())))
    path = tmp_path / "v.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)
    good, bad = (np.array([0, 2, end], np.int32).tobytes() for end in (4, 1 << 30))
    assert path.read_bytes().count(good) == 1
    path.write_bytes(path.read_bytes().replace(good, bad))
    with pytest.raises(BadInput, match="must be a complete Parquet or Arrow file"):
        find_vectors(str(tmp_path))


def test_a_later_file_of_another_dimension_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    pq.write_table(table(["a"], np.ones((1, 4), np.float32)), tmp_path / "1.parquet")
    pq.write_table(table(["b"], np.ones((1, 3), np.float32)), tmp_path / "2.parquet")
    with pytest.raises(BadInput, match=r"2\.parquet has vectors of 3 numbers and others have 4"):
        find_vectors(str(tmp_path))


def test_rows_without_a_good_vector_may_be_left_out(workspace: Workspace, tmp_path: Path) -> None:
    texts = write_texts(workspace, "four", [f"text {row}" for row in range(4)], rows_per_shard=2)
    without([[1.0, 0.0], [NAN, 1.0], [0.6, 0.8]])(tmp_path / "some.parquet")
    store = Store(texts, find_vectors(str(tmp_path / "some.parquet"), incomplete=True))
    build_stores(workspace, [store], local=True)
    assert verify_store(workspace.path(store)) == []
    manifest, left_out = (
        read_json(workspace.path(store) / f"{name}.json") for name in ("manifest", "quarantine")
    )
    assert (manifest["rows"], manifest["quarantined_vectors"]) == (2, 2)
    assert [row["row"] for row in left_out] == [1, 3]
    reader = open_store(workspace, store)
    assert reader.rows.tolist() == [0, 2]
    np.testing.assert_allclose(reader.gather(reader.rows), [[1.0, 0.0], [0.6, 0.8]], atol=1e-3)
    others = write_texts(workspace, "others", ["none", "of these"])
    with pytest.raises(BadInput, match=r"2 rows \('none', 'of these'\) of 2"):
        build_stores(workspace, [replace(store, texts=others)], local=True)


def test_the_same_vector_twice_counts_once(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = write_texts(workspace, "two", ["a", "b", "a"], deduplicate=False)
    vectors = np.array([[1, 0], [0, 1], [0.999999, 1e-4], [0, 1]], np.float32)
    pq.write_table(table(["a", "b", "a", "b"], vectors), tmp_path / "1.parquet")
    pq.write_table(table(["a"], np.array([[0.999999, 2e-3]], np.float32)), tmp_path / "2.parquet")
    store = Store(texts, find_vectors(str(tmp_path / "?.parquet")))
    build_stores(workspace, [store], local=True)
    assert "5 vectors read, 0 of other texts, 3 repeated" in capsys.readouterr().err
    assert open_store(workspace, store).gather(np.arange(3)).tolist() == [[1, 0], [0, 1], [1, 0]]


COLUMNS: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no texts": ({"id": [1], "embedding": [[1.0]]}, {}, r"column of texts, named text or sentence"),
    "several texts": ({"a": ["x"], "b": ["y"], "embedding": [[1.0]]}, {}, r"columns are: a \(string\), b"),
    "no vectors": ({"text": ["x"], "embedding": [[1]]}, {}, r"column of lists of floats.*embedding \(list<"),
    "misspelt": ({"text": ["x"], "v": [[1.0]]}, {"vector_column": "vv"}, r"but got 'vv'\. Did you mean v\?"),
    "wrong type": ({"text": ["x"], "v": [[1.0]]}, {"text_column": "v"}, r"column of texts, but 'v'.*is list"),
    "empty": ({"text": ["x"], "v": [[]]}, {"vector_column": "v"}, r"must have a|must be a column of lists"),
}


@each_row("case", COLUMNS)
def test_files_without_the_columns_are_refused(case: str, tmp_path: Path) -> None:
    columns, given, message = COLUMNS[case]
    pq.write_table(pa.table(columns), tmp_path / "bad.parquet")
    with pytest.raises(BadInput, match=message):
        find_vectors(str(tmp_path / "bad.parquet"), **given)


def test_sources_that_are_no_files_of_vectors_are_refused(
    tmp_path: Path, random_files: Callable[..., str]
) -> None:
    with pytest.raises(BadInput, match=r"source of vectors '.*none\.parquet' does not exist\. Give"):
        find_vectors(str(tmp_path / "none.parquet"))
    (tmp_path / "notes.json").write_text(json.dumps({}))
    with pytest.raises(BadInput, match=r"must be \.parquet, .*: notes\.json"):
        find_vectors(str(tmp_path / "notes.json"))
    path = Path(random_files(["a", "b"]))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"complete Parquet or Arrow file"):
        find_vectors(str(path))
    with pytest.raises(BadInput, match=r"teacher\.dimension <= dimensions of the vectors.*dimension=5"):
        find_vectors(random_files(["a"]), dimension=5)
    nothing = table(["a"], np.zeros((1, 2), np.float32)).slice(1)
    pq.write_table(nothing, tmp_path / "empty.parquet")
    with pytest.raises(BadInput, match="every file is empty"):
        find_vectors(str(tmp_path / "empty.parquet"))
    pq.write_table(pa.table({"words": ["a"], "embedding": [[1.0, 0.0]]}), tmp_path / "empty-2.parquet")
    with pytest.raises(BadInput, match=r"same columns.*first=\['words', 'embedding'\].*'text'"):
        find_vectors(str(tmp_path / "empty*.parquet"))
