"""Reading a store: memory-mapped shards of vectors, gathered by row id; and verifying their integrity.

A store that is larger than a node's disk is read from its remote, a few whole shards at a time.
"""

import functools
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from stillhouse.core.artifacts import MANIFEST, STREAMED, Workspace, read_json, read_manifest, sha256_of
from stillhouse.core.errors import BadInput, Hindered, blocked, require
from stillhouse.core.integrity import FILES, intact
from stillhouse.core.types import FloatArray, IntArray
from stillhouse.teachers.build_state import QUARANTINE
from stillhouse.teachers.shards import schema
from stillhouse.teachers.streamed_shards import StreamedShards
from stillhouse.values.data import AnyStore, Store

_REBUILD = "The command that built the store builds what is missing or damaged again."


class StoreReader:
    """A finished store. Shards are mapped when they are first read, so opening is fast at any size.

    Raises:
        BadInput: It is unfinished, or a shard is missing or not as large as the manifest says. A shard whose
            bytes have changed is refused when it is first read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = read_manifest(folder)
        self.dim, self.dtype = int(manifest["dim"]), str(manifest["dtype"])
        self._shards: list[dict[str, Any]] = manifest["shards"]
        self._table_rows, self._rows = int(manifest["table_rows"]), int(manifest["rows"])
        self.starts = np.array([shard["first"] for shard in self._shards], np.int64)
        """The first row of every shard, ascending."""
        self._check_files()
        self._quarantines = np.array([shard["quarantined"] > 0 for shard in self._shards])
        self._mapped: dict[int, npt.NDArray[np.floating]] = {}
        self._mapping = threading.Lock()

    def __len__(self) -> int:
        """The number of rows that have a vector."""
        return self._rows

    def __reduce__(self) -> tuple[type["StoreReader"], tuple[Path]]:
        return StoreReader, (self.folder,)

    @functools.cached_property
    def lacking(self) -> npt.NDArray[np.int64]:
        """int64, the row ids that have no vector and are quarantined, ascending."""
        rejected = read_json(intact(self.folder / QUARANTINE))
        return np.sort(np.array([row["row"] for row in rejected], np.int64))

    @functools.cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """int64, the row ids that have a vector, ascending."""
        rows = np.arange(self._table_rows, dtype=np.int64)
        return np.delete(rows, self.lacking) if self.lacking.size else rows

    def gather(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """Gather the float32 vectors of some rows, in that order; ids may repeat.

        Row ids are those of the text table, in any shape; the vectors have that shape, followed by E.

        Raises:
            BadInput: A row is quarantined, or outside the table.
        """
        rows = np.asarray(rows, dtype=np.int64)
        flat = rows.reshape(-1)
        if not flat.size:
            return np.empty((*rows.shape, self.dim), np.float32)
        low, high, total = int(flat.min()), int(flat.max()), self._table_rows
        require(0 <= low and high < total, f"row ids in [0, {total})", lowest=low, highest=high)
        shard_of = np.searchsorted(self.starts, flat, side="right") - 1
        shards = np.unique(shard_of).tolist()
        self._map(shards)
        stored = np.empty((flat.size, self.dim), self.dtype)
        for shard in shards:
            inside = np.flatnonzero(shard_of == shard)
            here = flat[inside]
            gaps = self._quarantines[shard]
            positions = self._position(shard, here) if gaps else here - self.starts[shard]
            stored[inside] = self._mapped[shard][positions]
        # NumPy converts half precision one value at a time.
        vectors: npt.NDArray[np.float32] = torch.from_numpy(stored).float().numpy()
        return vectors.reshape(*rows.shape, self.dim)

    def expect(self, rows_N2: IntArray) -> None:
        """Learn the first and the last row of each run that is read next; shards on the disk need nothing."""

    def _check_files(self) -> None:
        for shard in self._shards:
            problem = _size_problem(self.folder, shard)
            if problem:
                raise Hindered(f"a store's shards must be complete, but {problem}. {_REBUILD}")

    def _position(self, index: int, rows: IntArray) -> IntArray:
        """Return the position of each row in a shard with gaps."""
        stored = self._batch(index)["row"].to_numpy()
        position = np.searchsorted(stored, rows)
        inside = (
            stored[np.minimum(position, len(stored) - 1)] == rows
            if len(stored)
            else np.zeros(len(rows), bool)
        )
        if not inside.all():
            raise BadInput(
                f"Every gathered row must have a vector, but rows {np.unique(rows[~inside])[:5].tolist()} "
                f"are quarantined, see {QUARANTINE}; `.rows` lists the rows with a vector."
            )
        return position

    def _map(self, shards: Sequence[int]) -> None:
        if self._mapped.keys() >= set(shards):
            return
        with self._mapping:
            for index in shards:
                if index not in self._mapped:
                    # Once per shard and process, when its bytes are needed in memory anyway.
                    intact(self._file(index))
                    self._add(index)

    def _add(self, index: int) -> None:
        values = self._batch(index)["embedding"].flatten().to_numpy()
        self._mapped[index] = values.reshape(-1, self.dim)

    def _file(self, index: int) -> Path:
        return self.folder / str(self._shards[index]["name"])

    def _batch(self, index: int) -> Any:
        return read_shard(self._file(index), self.dim, self.dtype)


class StreamedReader(StoreReader):
    """A store of a remote, of which this node holds only the shards that are read now or next.

    Whoever reads says with `expect` what comes next, which is fetched meanwhile; other shards are fetched
    when they are read, and all others are let go then. One thread at a time may read.
    """

    def __init__(self, shards: StreamedShards) -> None:
        self._source = shards
        self._expected: frozenset[int] = frozenset()
        super().__init__(shards.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamedReader, (self._source,)

    def expect(self, rows_N2: IntArray) -> None:
        """Fetch the shards of runs, from first to last row, in the background, and let go of all others."""
        first, last = (np.searchsorted(self.starts, rows_N2, side="right") - 1).T
        self._hold(index for run in zip(first, last, strict=True) for index in range(run[0], run[1] + 1))

    def _hold(self, indices: Iterable[int]) -> None:
        in_order = [int(index) for index in indices]
        wanted = frozenset(in_order)
        if wanted != self._expected:
            self._mapped = {index: values for index, values in self._mapped.items() if index in wanted}
            self._source.hold([self._shards[index]["name"] for index in in_order])
            self._expected = wanted

    def _check_files(self) -> None:
        """Shards are compared with their checksums when they are fetched."""

    def _map(self, shards: Sequence[int]) -> None:
        if not self._expected.issuperset(shards):
            self._hold(shards)
        for index in shards:
            if index not in self._mapped:
                self._add(index)

    def _file(self, index: int) -> Path:
        return self._source.path(self._shards[index]["name"])


def open_store(workspace: Workspace, store: Store, *, streamed: bool = False) -> StoreReader:
    """Open a finished store.

    One that is not here is fetched whole from the remote or, if ``streamed``, a few shards at a time.

    Raises:
        BadInput: It is unfinished, damaged, or of a different dtype than the plan's.
    """
    remote = _streamed(workspace, store) if streamed else None
    reader = remote or StoreReader(workspace.path(store))
    if reader.dtype != store.dtype:
        raise BadInput(
            f"A store must have the dtype that the plan names, {store.dtype}, but {reader.folder} has "
            f"{reader.dtype}. Remove it and build it again."
        )
    return reader


def _streamed(workspace: Workspace, store: Store) -> StreamedReader | None:
    """Read a store from the remote; None if it is here, or is not there."""
    if workspace.remote is None or (workspace.place(store) / MANIFEST).exists():
        return None
    key = workspace.key(store)
    if not workspace.remote.has(key):
        return None
    return StreamedReader(StreamedShards(workspace.remote, key, workspace.root / STREAMED / key))


class StoreEnsembleReader:
    """The stores of several teachers over the same rows, read as the targets of `plan.data.Ensemble`.

    A row has a vector where every teacher has one. The vectors are put together when they are gathered, so
    nothing is copied on the disk and other weights need no other store. The sum of the weights is 1, and the
    dimension is the sum over the teachers.
    """

    def __init__(self, members: Sequence[StoreReader], weights: Sequence[float]) -> None:
        self._members, self._weights = list(members), list(weights)
        self.dim = sum(member.dim for member in members)

    def __len__(self) -> int:
        """The number of rows that have a vector."""
        return len(self.rows)

    @functools.cached_property
    def lacking(self) -> npt.NDArray[np.int64]:
        """int64, the row ids without a vector of some teacher, ascending."""
        return functools.reduce(np.union1d, (member.lacking for member in self._members))

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of every shard of the teacher with the fewest, ascending."""
        return min((member.starts for member in self._members), key=len)

    def expect(self, rows_N2: IntArray) -> None:
        """See `StreamedReader.expect`."""
        for member in self._members:
            member.expect(rows_N2)

    @functools.cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """int64, the row ids that have a vector of every teacher, ascending."""
        return functools.reduce(np.intersect1d, (member.rows for member in self._members))

    def gather(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """Gather the targets of some rows, in that order; see `StoreReader.gather`."""
        return joined([member.gather(rows) for member in self._members], self._weights)


def joined(members: Sequence[FloatArray], weights: Sequence[float]) -> npt.NDArray[np.float32]:
    """Join the vectors of several teachers, [√w_1 t_1, …, √w_m t_m] with t_i of length 1, to float32 ones.

    Their shapes differ in the last dimension alone, which is summed. A zero vector stays zero. Σ w_i is 1.
    """
    parts = []
    for vectors, weight in zip(members, weights, strict=True):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        parts.append(vectors * (math.sqrt(weight) / np.maximum(lengths, 1e-12)))
    together: npt.NDArray[np.float32] = np.concatenate(parts, axis=-1, dtype=np.float32)
    return together


class StoreMixReader:
    """Several stores whose rows, those without a vector included, follow each other.

    Raises:
        BadInput: Their dimensions differ.
    """

    def __init__(self, parts: Sequence[StoreReader | StoreEnsembleReader], rows: Sequence[int]) -> None:
        dims = sorted({part.dim for part in parts})
        require(len(dims) == 1, "the vectors of all sources must have one dimension", dimensions=dims)
        self.dim, self._parts = dims[0], list(parts)
        self._ends = np.cumsum([0, *rows], dtype=np.int64)
        self._starts, self._table_rows = self._ends[:-1], int(self._ends[-1])

    def __len__(self) -> int:
        """The number of rows that have a vector."""
        return sum(map(len, self._parts))

    @functools.cached_property
    def lacking(self) -> npt.NDArray[np.int64]:
        """int64, the row ids that have no vector, ascending."""
        return np.concatenate(
            [part.lacking + start for part, start in zip(self._parts, self._starts, strict=True)]
        )

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of every shard, ascending."""
        return np.concatenate(
            [part.starts + start for part, start in zip(self._parts, self._starts, strict=True)]
        )

    def expect(self, rows_N2: IntArray) -> None:
        """See `StreamedReader.expect`."""
        for part, start, end in zip(self._parts, self._starts, self._ends[1:], strict=True):
            here_N2 = rows_N2[(rows_N2[:, 1] >= start) & (rows_N2[:, 0] < end)]
            part.expect(np.clip(here_N2, start, end - 1) - start)

    @functools.cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """int64, the row ids that have a vector, ascending."""
        return np.concatenate(
            [part.rows + start for part, start in zip(self._parts, self._starts, strict=True)]
        )

    def gather(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """Gather the vectors of some rows, in that order; see `StoreReader.gather`."""
        rows = np.asarray(rows, dtype=np.int64)
        flat = rows.reshape(-1)
        vectors = np.empty((len(flat), self.dim), np.float32)
        if flat.size:
            low, high, total = int(flat.min()), int(flat.max()), self._table_rows
            require(0 <= low and high < total, f"row ids in [0, {total})", lowest=low, highest=high)
        part_of = np.searchsorted(self._starts, flat, side="right") - 1
        for index in np.unique(part_of):
            inside = part_of == index
            vectors[inside] = self._parts[index].gather(flat[inside] - self._starts[index])
        return vectors.reshape(*rows.shape, self.dim)


VectorReader = StoreReader | StoreEnsembleReader | StoreMixReader
"""Reads the vectors of rows: ``dim``, ``rows`` and ``lacking``, their number, and ``gather``."""


def open_vectors(workspace: Workspace, store: AnyStore, *, streamed: bool = False) -> VectorReader:
    """Open a finished store, those of several teachers, or a mix; see `open_store`.

    Raises:
        BadInput: See `open_store`.
    """
    parts: list[StoreReader | StoreEnsembleReader] = []
    for part in store.parts or (store,):
        members = [open_store(workspace, member, streamed=streamed) for member in part.stores]
        parts.append(StoreEnsembleReader(members, part.weights) if part.weights else members[0])
    return StoreMixReader(parts, [rows for rows, _ in store.roles]) if store.roles else parts[0]


def read_shard(path: Path, dim: int, dtype: str) -> Any:
    """Read the only record batch of a shard, memory-mapped.

    Raises:
        BadInput: It is missing, not Arrow, or of a different dimension or dtype.
    """
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise Hindered(
            f"{path} must be a complete Arrow file, but reading it gave: {error}. {_REBUILD}"
        ) from None
    except OSError as error:
        raise blocked(path, error) from None
    if not batch.schema.equals(schema(dim, dtype)):
        raise BadInput(
            f"{path} must hold vectors of {dim} {dtype} values, but holds "
            f"{batch.schema.field('embedding').type}. {_REBUILD}"
        )
    return batch


def verify_store(folder: Path) -> list[str]:
    """Recompute every checksum and count, and return one sentence per problem."""
    if not (folder / MANIFEST).exists():
        done = len(list(folder.glob("part-*.arrow")))
        return [
            f"{folder.name} is unfinished: {done} shards exist, and the command that wrote them continues it"
        ]
    manifest = read_manifest(folder)
    problems = [
        problem for shard in manifest["shards"] for problem in _shard_problems(folder, shard, manifest)
    ]
    names = {shard["name"] for shard in manifest["shards"]}
    unlisted = sorted(path.name for path in folder.glob("part-*.arrow") if path.name not in names)
    problems += [f"{name} is not in the manifest" for name in unlisted]
    for name, sha256 in manifest.get(FILES, {}).items():
        if (folder / name).exists() and sha256_of(folder / name) != sha256:
            problems.append(f"{name} was altered: its bytes differ from those that were written")
    return problems + list(_count_problems(folder, manifest))


def _shard_problems(folder: Path, shard: dict[str, Any], manifest: dict[str, Any]) -> Iterator[str]:
    name, path = shard["name"], folder / shard["name"]
    problem = _size_problem(folder, shard)
    if problem:
        yield problem
        return
    if sha256_of(path) != shard["sha256"]:
        yield f"{name} was altered: its bytes differ from those that were written"
    try:
        rows = read_shard(path, manifest["dim"], manifest["dtype"])["row"].to_numpy()
    except BadInput as error:
        yield f"{name} cannot be read: {error}"
        return
    last = shard["first"] + shard["rows"] + shard["quarantined"]
    if len(rows) != shard["rows"]:
        yield f"{name} has {len(rows)} rows, but the manifest says {shard['rows']}"
    elif len(rows) and (rows[0] < shard["first"] or rows[-1] >= last or (np.diff(rows) <= 0).any()):
        yield f"{name} holds rows that are repeated, out of order or of another shard"


def _size_problem(folder: Path, shard: dict[str, Any]) -> str:
    path = folder / shard["name"]
    if not path.exists():
        return f"{shard['name']} is missing"
    size, expected = path.stat().st_size, shard["bytes"]
    if size == expected:
        return ""
    change = "is truncated" if size < expected else "has grown"
    return f"{shard['name']} {change}: {size} bytes of {expected}"


def _count_problems(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    stored = sum(shard["rows"] for shard in manifest["shards"])
    if stored != manifest["rows"]:
        yield f"the shards hold {stored} rows, but the manifest says {manifest['rows']}"
    if manifest["input_rows"] != manifest["rows"] + manifest["quarantined"] + manifest["duplicates"]:
        yield "the input rows are not the sum of stored, quarantined and duplicate rows"
    try:
        rejected = {row["row"] for row in read_json(folder / QUARANTINE)}
    except BadInput as error:
        yield str(error)
        return
    expected = manifest["quarantined_vectors"]
    if len(rejected) != expected:
        yield f"{QUARANTINE} has {len(rejected)} rows, but the manifest says {expected}"
