"""Tables of texts, rows into them, and retrieval collections: written once, whole, named by their content.

A table is written into a temporary folder of the shelf, shard by shard, so that memory holds one shard and
the hashes that find duplicates; it takes its name, the hash of its shards, when it is whole.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.artifacts import Workspace, locked, read_manifest, replacing, write_array, write_manifest
from stillhouse.core.errors import BadInput, Hindered, require
from stillhouse.core.types import IntArray, ValueArray
from stillhouse.corpora.shares import chosen
from stillhouse.corpora.writing import Rejected, ShardWriter, temporary_folder
from stillhouse.plan.data import AllRows, Collection, Examples, Given, Sampled, TextTable

ROWS_PER_SHARD = 2048
QUARANTINE = "quarantine.jsonl"


def write_texts(
    workspace: Workspace,
    label: str,
    texts: Iterable[str | Rejected],
    *,
    rows_per_shard: int = ROWS_PER_SHARD,
    deduplicate: bool = True,
    origin: Mapping[str, Any] | None = None,
) -> TextTable:
    """Write a stream of texts as a `TextTable`; nothing is visible before all of it is on the disk.

    Rejected and empty rows go to ``quarantine.jsonl`` with the reason; ``input_rows`` in the manifest is the
    sum of ``rows``, ``quarantined`` and ``duplicates``.

    Args:
        workspace: Where the table will stand.
        label: Its readable name.
        texts: The rows, in the order that their ids will have.
        rows_per_shard: Rows of every shard but the last.
        deduplicate: Keep the first of equal texts (see `dedup_key`).
        origin: What the texts were made of, kept in the manifest.

    Raises:
        BadInput: Not one usable text came.
    """
    require(rows_per_shard >= 1, "rows_per_shard >= 1", rows_per_shard=rows_per_shard)
    shelf = workspace.folder(TextTable.kind)
    with temporary_folder(shelf) as folder:
        shards = ShardWriter(folder, rows_per_shard, deduplicate)
        with replacing(folder / QUARANTINE) as path, path.open("w", encoding="utf-8") as quarantine:
            for row, text in enumerate(texts):
                shards.take(row, text, quarantine)
        shards.flush()
        manifest = shards.manifest()
        if not manifest["rows"]:
            why = ", ".join(f"{count} {reason}" for reason, count in shards.reasons.most_common(5))
            raise BadInput(
                f"a corpus must hold at least one usable text, but {label} has none: {shards.input_rows} "
                f"rows were read{f', of which {why}' if why else ''}. Check the source and the limits."
            )
        return _publish(workspace, label, folder, {**manifest, "origin": dict(origin or {})})


def _publish(workspace: Workspace, label: str, folder: Path, manifest: dict[str, Any]) -> TextTable:
    shas = "\n".join(shard["sha256"] for shard in manifest["shards"])
    table = TextTable(sha256=hashlib.sha256(shas.encode()).hexdigest(), label=label)
    target = workspace.path(table)
    with locked(target.with_suffix(".lock")):
        if not workspace.finished(table):
            shutil.rmtree(target, ignore_errors=True)
            folder.rename(target)
            write_manifest(target, manifest)
    return table


class Texts:
    """A finished table, read by row id; a few decoded shards are kept, the rest stays on the disk.

    Attributes:
        shard_starts: int64, the first row id of every shard.
    """

    def __init__(self, folder: Path, *, cached_shards: int = 16) -> None:
        shards = read_manifest(folder)["shards"]
        self._paths = [folder / shard["name"] for shard in shards]
        ends = np.cumsum([0, *(shard["rows"] for shard in shards)], dtype=np.int64)
        self.shard_starts: npt.NDArray[np.int64] = ends[:-1]
        self._rows = int(ends[-1])
        self._column = lru_cache(maxsize=cached_shards)(self._read)

    def __len__(self) -> int:
        """The number of rows."""
        return self._rows

    def __getitem__(self, rows: IntArray | Sequence[int]) -> list[str]:
        """The texts of ``rows``, in that order; ids may repeat.

        Raises:
            IndexError: An id is negative or past the end.
        """
        wanted = np.asarray(rows, dtype=np.int64).reshape(-1)
        if wanted.size and not (0 <= wanted.min() and wanted.max() < self._rows):
            raise IndexError(f"row ids must be in [0, {self._rows}), but got {wanted.min()}..{wanted.max()}")
        shard_of = np.searchsorted(self.shard_starts, wanted, side="right") - 1
        texts = np.empty(wanted.size, dtype=object)
        for shard in np.unique(shard_of):
            here = np.flatnonzero(shard_of == shard)
            local = pa.array(wanted[here] - self.shard_starts[shard])
            texts[here] = self._column(int(shard)).take(local).to_pylist()
        return list(texts)

    def __iter__(self) -> Iterator[str]:
        """All texts, in order, a shard in memory at a time."""
        for shard in range(len(self.shard_starts)):
            yield from self.shard(shard)

    def shard(self, index: int) -> list[str]:
        """All texts of one shard."""
        return list(self._column(index).to_pylist())

    def _read(self, index: int) -> Any:
        try:
            return pq.read_table(self._paths[index], columns=["text"], memory_map=True)["text"]
        except (OSError, pa.ArrowInvalid) as error:
            raise Hindered(
                f"{self._paths[index]} must be a whole Parquet file, but reading it gave: {error}. "
                "Remove its folder and run the same command again."
            ) from None


def open_texts(workspace: Workspace, table: TextTable) -> Texts:
    """A finished table.

    Raises:
        BadInput: It is not finished.
    """
    return Texts(workspace.path(table))


def write_rows(
    workspace: Workspace,
    columns: Mapping[str, TextTable],
    rows: Mapping[str, IntArray],
    label: str,
    notes: Mapping[str, Any] | None = None,
    values: Mapping[str, ValueArray] | None = None,
) -> Examples:
    """Write examples: for every column int64 row ids, (N,) or (N, K), into that column's table.

    Args:
        workspace: Where they will stand.
        columns: Column name to its table.
        rows: Column name to its ids.
        label: Readable name.
        notes: Kept in the manifest, and no part of what the examples are.
        values: Labels, kept as int64, and scores or logits, kept as float32, (N,) or (N, C).

    Raises:
        BadInput: Columns and rows differ in names or in length, an id is outside its table, or a value is
            not finite.
    """
    require(set(columns) == set(rows), "columns == rows", columns=sorted(columns), rows=sorted(rows))
    arrays = {name: np.ascontiguousarray(rows[name], dtype=np.int64) for name in sorted(rows)}
    known = {name: _value(name, (values or {})[name]) for name in sorted(values or {})}
    lengths = {name: len(array) for name, array in {**arrays, **known}.items()}
    require(len(set(lengths.values())) == 1, "every column has the same number of rows", rows=lengths)
    for name, array in arrays.items():
        _check_ids(workspace, name, columns[name], array)
    both = {**arrays, **known}
    hashed = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in both.items()}
    shapes = {name: list(array.shape) for name, array in both.items()}
    kinds = [{name: str(array.dtype) for name, array in known.items()}] if known else []
    sha256 = hashlib.sha256(json.dumps([hashed, shapes, *kinds], sort_keys=True).encode()).hexdigest()
    examples = Examples(columns=dict(columns), origin=Given(sha256), label=label, values=tuple(known))
    manifest = {**(notes or {}), "rows": next(iter(lengths.values())), "sha256": hashed}
    _write_arrays(workspace, examples, both, manifest)
    return examples


def open_rows(workspace: Workspace, examples: Examples) -> dict[str, IntArray]:
    """Row ids by column, memory-mapped.

    Raises:
        BadInput: The examples are not finished.
    """
    if isinstance(examples.origin, Sampled):
        kept, rows = _kept(workspace, examples.origin), open_rows(workspace, examples.origin.rows)
        return {name: ids[kept] for name, ids in rows.items()}
    if isinstance(examples.origin, AllRows):
        (name, table), *more = examples.columns.items()
        assert not more, "AllRows has one column"
        return {name: np.arange(read_manifest(workspace.path(table))["rows"], dtype=np.int64)}
    folder = workspace.path(examples)
    read_manifest(folder)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in sorted(examples.columns)}


def open_values(workspace: Workspace, examples: Examples) -> dict[str, ValueArray]:
    """What is known of the rows beside their texts, by name, memory-mapped: int64 or float32.

    Raises:
        BadInput: The examples are not finished.
    """
    if not examples.values:
        return {}
    if isinstance(examples.origin, Sampled):
        kept, values = _kept(workspace, examples.origin), open_values(workspace, examples.origin.rows)
        return {name: value[kept] for name, value in values.items()}
    folder = workspace.path(examples)
    read_manifest(folder)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in examples.values}


def _kept(workspace: Workspace, share: Sampled) -> IntArray:
    """The rows of a share, in their order."""
    count = len(next(iter(open_rows(workspace, share.rows).values())))
    label_N = open_values(workspace, share.rows).get("label")
    return chosen(np.zeros(count, np.int64) if label_N is None else label_N, share.fraction, share.seed)


def write_collection(
    workspace: Workspace, label: str, queries: TextTable, passages: TextTable, qrels_N3: IntArray
) -> Collection:
    """Write a retrieval collection.

    Args:
        workspace: Where it will stand.
        label: Its readable name.
        queries: What is asked.
        passages: What is searched.
        qrels_N3: int64 rows of query row, passage row, gain.

    Raises:
        BadInput: The shape is not (N, 3), there is no row, or an id is outside its table.
    """
    qrels_N3 = np.ascontiguousarray(qrels_N3, dtype=np.int64)
    require(qrels_N3.ndim == 2 and qrels_N3.shape[1] == 3, "qrels have 3 columns", shape=qrels_N3.shape)
    require(len(qrels_N3) > 0, "a collection has at least one relevant passage", rows=len(qrels_N3))
    _check_ids(workspace, "queries", queries, qrels_N3[:, 0])
    _check_ids(workspace, "passages", passages, qrels_N3[:, 1])
    sha256 = hashlib.sha256(qrels_N3.tobytes()).hexdigest()
    collection = Collection(queries=queries, passages=passages, sha256=sha256, label=label)
    _write_arrays(workspace, collection, {"qrels": qrels_N3}, {"rows": len(qrels_N3)})
    return collection


def open_qrels(workspace: Workspace, collection: Collection) -> IntArray:
    """The judgements of a finished collection, int64 (N, 3): query row, passage row, gain."""
    folder = workspace.path(collection)
    read_manifest(folder)
    qrels_N3: IntArray = np.load(folder / "qrels.npy", mmap_mode="r")
    return qrels_N3


def _check_ids(workspace: Workspace, name: str, table: TextTable, ids: IntArray) -> None:
    rows = int(read_manifest(workspace.path(table))["rows"])
    inside = bool(ids.size == 0 or (0 <= ids.min() and ids.max() < rows))
    require(inside, f"row ids of {name} are in [0, {rows})", column=name)


def _value(name: str, given: ValueArray) -> ValueArray:
    array = np.asarray(given)
    require(array.dtype.kind in "iufb", "a value is a number", value=name, dtype=str(array.dtype))
    require(array.ndim in (1, 2), "a value has the shape (N,) or (N, C)", value=name, shape=array.shape)
    require(bool(np.isfinite(array).all()), "a value is finite", value=name)
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, dtype=np.float32)
    return np.ascontiguousarray(array, dtype=np.int64)


def _write_arrays(
    workspace: Workspace,
    artifact: Examples | Collection,
    arrays: Mapping[str, ValueArray],
    manifest: dict[str, Any],
) -> None:
    folder = workspace.path(artifact)
    with locked(folder.with_suffix(".lock")):
        if workspace.finished(artifact):
            return
        for name, array in arrays.items():
            write_array(folder / f"{name}.npy", array)
        write_manifest(folder, manifest)
