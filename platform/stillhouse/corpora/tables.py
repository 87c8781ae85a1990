"""Tables of texts, rows of ids into them, and retrieval collections: written once and named by their content.

A table is written to a temporary folder, shard by shard, so that memory only holds one shard and a bounded
part of the hashes that detect duplicates. When it is complete, it is renamed to the hash of its shards.
"""

import contextlib
import hashlib
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.artifacts import (
    MANIFEST,
    Workspace,
    locked,
    mapped_array,
    read_manifest,
    replacing,
    sha256_of,
    write_array,
    write_manifest,
)
from stillhouse.core.errors import BadInput, Hindered, blocked, require
from stillhouse.core.integrity import FILES, intact
from stillhouse.core.types import IntArray, ValueArray
from stillhouse.corpora.reading.cleaning import dedup_key
from stillhouse.corpora.reading.rows import Rejected, is_unicode, remedies
from stillhouse.corpora.row_shares import sample_rows
from stillhouse.corpora.seen_keys import SeenKeys
from stillhouse.values.data import AllRows, Collection, Examples, FewerNegatives, Given, Sampled, TextTable

ROWS_PER_SHARD = 2048
_SHARDS_PER_SIZE, _DOUBLINGS = 512, 5
_COMPARED = 16_384
"""Texts that are compared with those before at once."""
QUARANTINE = "quarantine.jsonl"
_SHOWN = 200
_TEMPORARY = ".writing-"
RUNS = "parallel"
"""The note that has an entry for each run of rows, with the number of its ``rows``."""
_OWN = ("rows", "sha256", "plan", FILES)
"""What manifests of examples have that is no note."""


def shard_size(first: int, index: int) -> int:
    """Number of rows of a shard that is not the last; ``first`` is that of the first shards.

    Shards are small in a small table, where each is a unit of work and of what a kill loses, and large in a
    large one, where each is a file and a memory map: after every 512 shards the size doubles, up to 32 times
    the first. With first shards of 2,048 rows, a million rows are 512 shards and a thousand million 17,323.
    """
    return first << min(index // _SHARDS_PER_SIZE, _DOUBLINGS)


def shard_count(rows: int, first: int = ROWS_PER_SHARD) -> int:
    """Number of shards of a table whose first ones have ``first`` rows."""
    count = 0
    while rows > 0:
        rows, count = rows - shard_size(first, count), count + 1
    return count


def _checked(text: str | Rejected) -> Rejected | None:
    if isinstance(text, Rejected):
        return text
    if not text.strip():
        return Rejected(text, "empty")
    if not is_unicode(text):
        return Rejected(text, "not valid Unicode")
    return None


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a folder that is removed afterwards, and remove those left behind by killed writers."""
    parent.mkdir(parents=True, exist_ok=True)
    for lock in parent.glob(f"{_TEMPORARY}*.lock"):
        # A lock that can be taken belongs to a process that has died.
        with contextlib.suppress(BadInput, FileNotFoundError), locked(lock, wait=False):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    folder = parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
    lock = folder.with_suffix(".lock")
    with locked(lock):
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def write_texts(
    workspace: Workspace,
    label: str,
    texts: Iterable[str | Rejected],
    *,
    rows_per_shard: int = ROWS_PER_SHARD,
    deduplicate: bool = True,
    origin: Mapping[str, Any] | None = None,
) -> TextTable:
    """Write a stream of texts as a `TextTable`, which appears only when it is complete.

    Rejected and empty rows go to ``quarantine.jsonl`` with the reason; ``input_rows`` in the manifest is the
    sum of ``rows``, ``quarantined`` and ``duplicates``.

    Of equal texts (see `dedup_key`) only the first is kept, unless ``deduplicate`` is false. The manifest has
    the origin. For the rows of a shard see `shard_size`.

    Raises:
        BadInput: If there is no usable text.
    """
    with TableWriter(workspace, label, rows_per_shard=rows_per_shard, deduplicate=deduplicate) as writer:
        for text in texts:
            writer.take(text)
        return writer.publish(origin)


class TableWriter:
    """A table that is being written, see `write_texts`; several may be open at once.

    Without `publish` nothing is left of it.
    """

    def __init__(
        self,
        workspace: Workspace,
        label: str,
        *,
        rows_per_shard: int = ROWS_PER_SHARD,
        deduplicate: bool = True,
    ) -> None:
        require(rows_per_shard >= 1, "rows_per_shard >= 1", rows_per_shard=rows_per_shard)
        self.workspace, self.label = workspace, label
        self._rows_per_shard, self._deduplicate = rows_per_shard, deduplicate
        self._open_shard: list[str] = []
        self._shards: list[dict[str, Any]] = []
        self._undecided: list[str] = []
        self._input_rows, self._duplicates, self._reasons = 0, 0, Counter[str]()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "TableWriter":
        """Make the temporary folder."""
        self._folder = self._open.enter_context(temporary_folder(self.workspace.folder(TextTable.kind)))
        self._seen = SeenKeys(self._folder)
        self._quarantining = self._open.enter_context(contextlib.ExitStack())
        path = self._quarantining.enter_context(replacing(self._folder / QUARANTINE))
        self._quarantine = self._quarantining.enter_context(path.open("w", encoding="utf-8"))
        return self

    def __exit__(self, *error: Any) -> None:
        """Remove the temporary folder."""
        self._open.__exit__(*error)

    @property
    def rows(self) -> int:
        """Number of texts that are in the table so far."""
        self._decide()
        return self._input_rows - self._duplicates - self._reasons.total()

    def take(self, text: str | Rejected) -> None:
        """Keep, quarantine or drop the next row."""
        row, self._input_rows = self._input_rows, self._input_rows + 1
        if (rejected := _checked(text)) is not None:
            self._reasons[rejected.reason] += 1
            shown = rejected.raw[:_SHOWN].encode("utf-8", "backslashreplace").decode()
            line = {"row": row, "reason": rejected.reason, "text": shown}
            self._quarantine.write(json.dumps(line, ensure_ascii=False) + "\n")
            return
        assert isinstance(text, str)
        if not self._deduplicate:
            self._keep(text)
            return
        self._undecided.append(text)
        if len(self._undecided) == _COMPARED:
            self._decide()

    def publish(self, origin: Mapping[str, Any] | None = None) -> TextTable:
        """Complete the table, which appears now; its manifest has the origin.

        Raises:
            BadInput: If there is no usable text.
        """
        self._quarantining.close()
        rows = self.rows
        self._flush()
        assert rows == sum(shard["rows"] for shard in self._shards)
        if not rows:
            why = ", ".join(f"{count} {reason}" for reason, count in self._reasons.most_common(5))
            raise BadInput(
                f"a corpus must have at least one usable text, but {self.label} has none: "
                f"{self._input_rows} rows were read{f', of which {why}' if why else ''}. Check the source "
                "and the limits." + remedies(self._reasons)
            )
        content = {
            "rows": rows,
            "input_rows": self._input_rows,
            "duplicates": self._duplicates,
            "quarantined": self._reasons.total(),
            "quarantine_reasons": dict(sorted(self._reasons.items())),
            "shards": self._shards,
            "origin": dict(origin or {}),
        }
        shas = "\n".join(shard["sha256"] for shard in self._shards)
        table = TextTable(sha256=hashlib.sha256(shas.encode()).hexdigest(), label=self.label)
        target = self.workspace.path(table)
        with locked(target.with_suffix(".lock")):
            if not self.workspace.finished(table):
                shutil.rmtree(target, ignore_errors=True)
                self._folder.rename(target)
                write_manifest(target, content)
                self.workspace.publish(table)
        return table

    def _decide(self) -> None:
        """Keep those of the last texts that are new, and drop the others."""
        texts, self._undecided = self._undecided, []
        new = self._seen.new(b"".join(map(dedup_key, texts)))
        self._duplicates += len(texts) - int(new.sum())
        for row in np.flatnonzero(new):
            self._keep(texts[row])

    def _keep(self, text: str) -> None:
        self._open_shard.append(text)
        if len(self._open_shard) == shard_size(self._rows_per_shard, len(self._shards)):
            self._flush()

    def _flush(self) -> None:
        """Close the open shard."""
        if not self._open_shard:
            return
        name = f"part-{len(self._shards):05d}.parquet"
        with replacing(self._folder / name) as temporary:
            column = pa.array(self._open_shard, pa.large_string())
            pq.write_table(pa.table({"text": column}), temporary, compression="zstd", use_dictionary=False)
        sha256 = sha256_of(self._folder / name)
        self._shards.append({"name": name, "rows": len(self._open_shard), "sha256": sha256})
        self._open_shard = []


class ColumnWriter:
    """A table of the distinct texts of a column, in the order in which they come, and their rows."""

    def __init__(self, workspace: Workspace, label: str) -> None:
        workspace.root.mkdir(parents=True, exist_ok=True)
        self._table, self._seen = TableWriter(workspace, label, deduplicate=False), SeenKeys(workspace.root)

    def __enter__(self) -> "ColumnWriter":
        """Make the temporary folder."""
        self._table.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Remove the temporary folder."""
        self._table.__exit__(*error)

    def rows(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Add the texts that are new, and return the rows of all of them; equal texts have one row."""
        keys = (hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
        rows_N, new_N = self._seen.numbers(b"".join(keys))
        for at in np.flatnonzero(new_N).tolist():
            self._table.take(texts[at])
        return rows_N

    def publish(self, origin: Mapping[str, Any]) -> TextTable:
        """Complete the table; see `TableWriter.publish`."""
        return self._table.publish(origin)


class Texts:
    """A finished table, read by row id. A few decoded shards are cached; the rest stays on disk.

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

    def __getitem__(self, rows: IntArray | Sequence[int] | slice) -> list[str]:
        """Read the texts of ``rows``, in that order; ids may repeat.

        Raises:
            IndexError: If an id is negative or too large.
        """
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(self._rows))
        ids = np.asarray(rows, dtype=np.int64).reshape(-1)
        if ids.size and not (0 <= ids.min() and ids.max() < self._rows):
            raise IndexError(f"row ids must be in [0, {self._rows}), but got {ids.min()}..{ids.max()}")
        shard_of = np.searchsorted(self.shard_starts, ids, side="right") - 1
        texts = np.empty(ids.size, dtype=object)
        for shard in np.unique(shard_of):
            here = np.flatnonzero(shard_of == shard)
            local = pa.array(ids[here] - self.shard_starts[shard])
            texts[here] = self._column(int(shard)).take(local).to_pylist()
        return list(texts)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all texts in order, with one shard in memory."""
        for shard in range(len(self.shard_starts)):
            yield from self.shard(shard)

    def shard(self, index: int) -> list[str]:
        """Read all texts of one shard."""
        return list(self._column(index).to_pylist())

    def _read(self, index: int) -> Any:
        path = self._paths[index]
        try:
            return pq.read_table(intact(path), columns=["text"], memory_map=True)["text"]
        except FileNotFoundError:
            raise Hindered(
                f"{path} must exist, but it does not. Run the same command again: it makes what is missing."
            ) from None
        except (OSError, pa.ArrowInvalid) as error:
            if isinstance(error, OSError) and error.errno:
                raise blocked(path, error) from None
            raise Hindered(
                f"{path} must be a complete Parquet file, but reading it failed: {error}. Remove the "
                f"{MANIFEST} beside it and run the same command again: it makes what is missing."
            ) from None


def open_texts(workspace: Workspace, table: TextTable) -> Texts:
    """Open a finished table.

    Raises:
        BadInput: If the table is not finished.
    """
    return Texts(workspace.path(table))


@lru_cache(maxsize=8)
def cached_texts(folder: Path) -> Texts:
    """Open a finished table, once per process: its manifest lists all shards, of which many are read."""
    return Texts(folder, cached_shards=1)


def sample_of(workspace: Workspace, table: TextTable, count: int) -> tuple[list[int], list[str]]:
    """Some rows of a table and their texts, evenly spread over it."""
    texts = open_texts(workspace, table)
    rows = np.unique(np.linspace(0, len(texts) - 1, min(count, len(texts))).astype(np.int64))
    return rows.tolist(), texts[rows]


def write_rows(
    workspace: Workspace,
    columns: Mapping[str, TextTable],
    rows: Mapping[str, IntArray],
    label: str,
    notes: Mapping[str, Any] | None = None,
    values: Mapping[str, ValueArray] | None = None,
) -> Examples:
    """Write examples: for every column int64 row ids into its table, (N,) or (N, K).

    Args:
        workspace: Workspace for the examples.
        columns: Column name to its table.
        rows: Column name to its ids.
        label: Readable name of the examples.
        notes: Kept in the manifest; not part of the identity.
        values: Labels, stored as int64, and scores or logits, stored as float32; (N,) or (N, C).

    Raises:
        BadInput: If columns and rows have other names or lengths, an id is outside its table, or a value is
            not finite.
    """
    require(set(columns) == set(rows), "columns == rows", columns=sorted(columns), rows=sorted(rows))
    arrays = {name: np.ascontiguousarray(rows[name], dtype=np.int64) for name in sorted(rows)}
    known = {name: _value(name, (values or {})[name]) for name in sorted(values or {})}
    lengths = {name: len(array) for name, array in {**arrays, **known}.items()}
    if len(set(lengths.values())) != 1:
        raise BadInput(f"every column must have the same number of rows, but they have {lengths}.")
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


@dataclass(frozen=True)
class Rows:
    """The content of rows of examples.

    Attributes:
        ids: int64 row ids by column, (N,) or (N, K).
        values: int64 or float32 values by name, (N,) or (N, C).
        notes: The notes of the manifest. ``parallel`` has an entry for each run of rows, with their number.
    """

    ids: Mapping[str, IntArray]
    values: Mapping[str, ValueArray]
    notes: Mapping[str, Any] = field(default_factory=dict)


def restrict(rows: Rows, kept: IntArray) -> Rows:
    """Keep some of the rows, by number and in that order: their ids, their values and their notes.

    Hold-out, samples, splits and mining all use it, so that nothing that belongs to a row is lost on the way.
    """
    notes = dict(rows.notes)
    if RUNS in notes:
        runs = np.searchsorted(np.cumsum([run["rows"] for run in notes[RUNS]]), kept, side="right")
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        sizes = np.diff(starts, append=len(runs)).tolist()
        notes[RUNS] = [
            {**notes[RUNS][runs[at]], "rows": size} for at, size in zip(starts, sizes, strict=True)
        ]
    return Rows(
        {name: ids[kept] for name, ids in rows.ids.items()},
        {name: value[kept] for name, value in rows.values.items()},
        notes,
    )


def open_examples(workspace: Workspace, examples: Examples) -> Rows:
    """Open ids, values and notes of examples, memory-mapped where they lie in files.

    Raises:
        BadInput: If the examples are not finished, or have fewer hard negatives than are asked for.
    """
    origin = examples.origin
    if isinstance(origin, FewerNegatives):
        return _with_fewer(open_examples(workspace, origin.rows), origin.negatives)
    if isinstance(origin, Sampled):
        return restrict(open_examples(workspace, origin.rows), sampled_rows(workspace, origin))
    if isinstance(origin, AllRows):
        (name,) = examples.columns
        return Rows({name: np.arange(count_rows(workspace, examples), dtype=np.int64)}, {})
    folder = workspace.path(examples)
    notes = {name: note for name, note in read_manifest(folder).items() if name not in _OWN}
    return Rows(
        {name: mapped_array(folder / f"{name}.npy") for name in sorted(examples.columns)},
        {name: mapped_array(folder / f"{name}.npy") for name in examples.values},
        notes,
    )


def _with_fewer(rows: Rows, wanted: int) -> Rows:
    given = rows.ids["negatives"].shape[1]
    require(
        wanted <= given,
        "candidates of a query <= 1 + its hard negatives",
        candidates=1 + wanted,
        negatives=given,
        remedy="Lower candidates, or mine or read more negatives.",
    )
    cut = {"scores": rows.values["scores"][:, : 1 + wanted]} if "scores" in rows.values else {}
    negatives = rows.ids["negatives"][:, :wanted]
    return Rows({**rows.ids, "negatives": negatives}, {**rows.values, **cut}, rows.notes)


def open_rows(workspace: Workspace, examples: Examples) -> Mapping[str, IntArray]:
    """Open the row ids of each column; see `open_examples`."""
    return open_examples(workspace, examples).ids


def count_rows(workspace: Workspace, examples: Examples) -> int:
    """Count the rows of examples.

    Raises:
        BadInput: If the examples, or the table whose rows they are, are not finished.
    """
    if isinstance(examples.origin, AllRows):
        (table,) = examples.columns.values()
        return int(read_manifest(workspace.path(table))["rows"])
    return len(next(iter(open_rows(workspace, examples).values())))


def open_values(workspace: Workspace, examples: Examples) -> Mapping[str, ValueArray]:
    """Open the values of the rows by name, such as labels; see `open_examples`."""
    return open_examples(workspace, examples).values if examples.values else {}


def sampled_rows(workspace: Workspace, share: Sampled) -> IntArray:
    """Return the rows of a sample, in their order."""
    count = count_rows(workspace, share.rows)
    label_N = open_values(workspace, share.rows).get("label")
    if label_N is None:
        # Of several sources, each keeps its share.
        runs = [rows for rows, _ in share.rows.text_roles] or [count]
        label_N = np.repeat(np.arange(len(runs)), runs)
        assert len(label_N) == count, "the runs of roles cover the rows"
    return sample_rows(label_N, share.fraction, share.seed)


_ARRAYS = {"qrels": "qrels_N3", "own": "own_N2", "names": "names_N"}


@dataclass(frozen=True)
class Judgements:
    """Relevance judgements: which passage answers which query.

    Attributes:
        qrels_N3: int64 judgements: query row, passage row, gain. Passages without a text have rows below -1.
        own_N2: Query row, passage row: the passage is the query itself and is not found by it.
        names_N: For each passage, a number in the order of its id in the user's files; empty where it has
            none. Of equal scores, the highest comes first.
    """

    qrels_N3: IntArray
    own_N2: IntArray = field(default_factory=lambda: np.empty((0, 2), np.int64))
    names_N: IntArray = field(default_factory=lambda: np.empty(0, np.int64))


def write_collection(
    workspace: Workspace,
    label: str,
    queries: TextTable,
    passages: TextTable,
    given: "IntArray | Judgements",
) -> Collection:
    """Write a retrieval collection, given `Judgements` or their int64 array: query row, passage row, gain.

    Raises:
        BadInput: If the shape is not (N, 3), there is no judgement, or an id is outside its table.
    """
    made = given if isinstance(given, Judgements) else Judgements(given)
    qrels_N3 = np.ascontiguousarray(made.qrels_N3, dtype=np.int64)
    if qrels_N3.ndim != 2 or qrels_N3.shape[1] != 3 or not len(qrels_N3):
        raise BadInput(f"qrels must have rows and 3 columns, but have the shape {qrels_N3.shape}.")
    _check_ids(workspace, "queries", queries, qrels_N3[:, 0])
    _check_ids(workspace, "passages", passages, qrels_N3[qrels_N3[:, 1] >= -1, 1])
    given_arrays = {name: getattr(made, attribute) for name, attribute in _ARRAYS.items()}
    arrays = {name: np.ascontiguousarray(each, np.int64) for name, each in given_arrays.items() if len(each)}
    sha256 = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
    collection = Collection(queries=queries, passages=passages, sha256=sha256, label=label)
    _write_arrays(workspace, collection, arrays, {"rows": len(qrels_N3), "arrays": list(arrays)})
    return collection


def open_judgements(workspace: Workspace, collection: Collection) -> Judgements:
    """Open what a finished collection says about its passages."""
    folder = workspace.path(collection)
    names = read_manifest(folder).get("arrays", ["qrels"])
    arrays = {name: mapped_array(folder / f"{name}.npy") for name in names}
    return Judgements(**{_ARRAYS[name]: array for name, array in arrays.items()})


def sampled_judgements(judgements: Judgements, rows: IntArray) -> Judgements:
    """Restrict judgements to some of the passages, by ascending row; those without a text stay judged."""
    kept = []
    for array in (np.array(judgements.qrels_N3), np.array(judgements.own_N2)):
        inside = np.isin(array[:, 1], rows)
        array[inside, 1] = np.searchsorted(rows, array[inside, 1])
        kept.append(array[inside | (array[:, 1] < -1)])
    names_N = judgements.names_N
    return Judgements(kept[0], kept[1], names_N[rows] if len(names_N) else names_N)


def _check_ids(workspace: Workspace, name: str, table: TextTable, ids: IntArray) -> None:
    rows = int(read_manifest(workspace.path(table))["rows"])
    if ids.size and not (0 <= ids.min() and ids.max() < rows):
        raise BadInput(f"row ids of {name} must be in [0, {rows}), but are in [{ids.min()}, {ids.max()}].")


def _value(name: str, given: ValueArray) -> ValueArray:
    array = np.asarray(given)
    if array.dtype.kind not in "iufb":
        raise BadInput(f"the value `{name}` must be a number, but has the type {array.dtype}.")
    if array.ndim not in (1, 2):
        raise BadInput(f"the value `{name}` must have the shape (N,) or (N, C), but has {array.shape}.")
    if not np.isfinite(array).all():
        raise BadInput(f"the value `{name}` must be finite, but contains NaN or infinity.")
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
        workspace.publish(artifact)
