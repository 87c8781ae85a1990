"""From one shard of texts to one shard of vectors: the unit of work, resumption and verification.

The bytes of a shard are a function of the shard alone (at fixed threads, on one kind of machine): neither the
number of actors nor their order changes them.
"""

import functools
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from stillhouse.core.artifacts import Workspace, read_manifest, write_atomically, write_json
from stillhouse.core.cache import has_room
from stillhouse.core.identity import fingerprint
from stillhouse.core.remotes import File, Remote
from stillhouse.core.tokenizing import FastTokenizer, Ids, Offsets, cached_tokenizer
from stillhouse.core.types import IntArray
from stillhouse.corpora.tables import cached_texts
from stillhouse.teachers.forward import Forward, Vectors
from stillhouse.teachers.runtimes import Running, start
from stillhouse.teachers.weights import on_this_machine
from stillhouse.values.data import Model, Store

_NOTE = ".shard.json"

ARROW_TYPE = {"float16": pa.float16(), "float32": pa.float32()}
"""Maps a store's dtype to the type of its values on the disk."""


@dataclass(frozen=True)
class Work:
    """Everything that a process needs to build any shard of a store.

    The tokenizer is a model whose folder has the teacher's, None where no model is run. 0 threads keep the
    current number; 0 tokens per batch, padding included, take what suits the device and the runtime. Every
    shard is published to the remote when it is written; there is none if all processes see ``root``.
    """

    store: Store
    root: Path
    tokenizer: Model | None = None
    device: str = "cpu"
    threads: int = 0
    batch_tokens: int = 0
    remote: Remote | None = None

    @property
    def workspace(self) -> Workspace:
        """The workspace, on whichever node asks."""
        return Workspace(self.root, self.remote)

    @property
    def folder(self) -> Path:
        """The folder of the shards that were made on this node."""
        return self.workspace.place(self.store)

    @property
    def texts_folder(self) -> Path:
        """The folder of the texts, which are fetched if this node does not have them."""
        return self.workspace.path(self.store.texts)


class Shard(NamedTuple):
    """A finished shard, by its index in the text table, with size and hash of its file.

    ``rows`` have a vector, ``quarantined`` ones none. Tokens are counted without padding. The seconds are 0
    if it existed already.
    """

    part: int
    rows: int
    quarantined: int
    dim: int
    tokens: int
    bytes: int
    sha256: str
    seconds: float = 0.0


def part_name(index: int) -> str:
    """Return the file name of a shard."""
    return f"part-{index:05d}.arrow"


def note_name(index: int) -> str:
    """Return the name of the note that says that a shard has been published."""
    return f"part-{index:05d}{_NOTE}"


def quarantine_name(index: int) -> str:
    """Return the file name of a shard's rows without a vector; the file is missing if every row has one."""
    return f"part-{index:05d}.quarantine.json"


def shard_rows(texts_folder: Path) -> list[int]:
    """Return the number of rows of every shard of a text table."""
    return [int(shard["rows"]) for shard in read_manifest(texts_folder)["shards"]]


@functools.lru_cache(maxsize=8)
def _first_rows(texts_folder: Path) -> IntArray:
    return np.cumsum([0, *shard_rows(texts_folder)], dtype=np.int64)


def schema(dim: int, dtype: str, notes: Mapping[str, str] | None = None) -> pa.Schema:
    """Return the Arrow schema of a shard."""
    fields = [("row", pa.int64()), ("embedding", pa.list_(ARROW_TYPE[dtype], dim))]
    return pa.schema(fields, metadata=dict(notes or {}))


def digest_of(rows: IntArray, stored_NE: npt.NDArray[Any], tokens: int) -> str:
    """Hash the content of a shard, which its file states: a store under construction has no manifest."""
    digest = hashlib.sha256(f"{stored_NE.dtype} {stored_NE.shape} {tokens}\n".encode())
    digest.update(np.ascontiguousarray(rows, np.int64).tobytes())
    digest.update(np.ascontiguousarray(stored_NE).tobytes())
    return digest.hexdigest()


def tokenise(work: Work, index: int) -> tuple[Ids, Offsets]:
    """Read a shard's texts, prepend the prompt to each, and tokenise them."""
    texts = cached_texts(work.texts_folder).shard(index)
    tokenizer = _tokenizer_of(work)
    return tokenizer([work.store.prompt + text for text in texts] if work.store.prompt else texts)


def write_shard(
    work: Work, index: int, vectors_NE: Vectors, without: Mapping[int, str], *, tokens: int, start: float
) -> Shard:
    """Write the file of a shard; rows without a vector are quarantined with a reason.

    ``vectors_NE`` has a row for every text of the shard. ``without`` says by row, counted from the first of
    the shard, why there is no vector. Tokens are counted without padding. ``start`` is when the work began,
    by `time.perf_counter`.
    """
    store, folder = work.store, work.folder
    with np.errstate(over="ignore"):
        stored_NE = vectors_NE.astype(store.dtype)
    reasons = {**_faults(vectors_NE, stored_NE), **without}
    first = int(_first_rows(work.texts_folder)[index])
    rejected = [{"row": first + row, "reason": reason} for row, reason in sorted(reasons.items())]
    if rejected:
        write_json(folder / quarantine_name(index), rejected)
    else:
        (folder / quarantine_name(index)).unlink(missing_ok=True)
    kept = np.setdiff1d(np.arange(len(vectors_NE)), np.fromiter(reasons, np.int64, len(reasons)))
    content = encoded(first + kept, stored_NE[kept], tokens, store.dtype)
    write_atomically(folder / part_name(index), content)
    size, sha256 = len(content), hashlib.sha256(content).hexdigest()
    seconds = time.perf_counter() - start
    shard = Shard(index, len(kept), len(rejected), vectors_NE.shape[1], tokens, size, sha256, seconds)
    publish_shard(work, shard, rejected)
    return shard


def publish_shard(work: Work, shard: Shard, rejected: list[dict[str, Any]]) -> None:
    """Publish a shard as soon as it is written, so that no other node makes it again: its file, then a note.

    Nothing happens without a remote.

    Raises:
        Hindered: The remote does not take it.
    """
    if work.remote is None:
        return
    key, name = work.workspace.key(work.store), part_name(shard.part)
    files = {name: File(shard.sha256, shard.bytes)}
    work.remote.put_all({name: work.folder / name}, files, key)
    note = {"shard": shard._replace(seconds=0.0)._asdict(), "rejected": rejected}
    work.remote.write(f"{key}/{note_name(shard.part)}", json.dumps(note).encode())
    if not has_room(work.workspace.root, shard.bytes):
        # What the remote has is fetched by whoever reads it; a store may be larger than this disk.
        (work.folder / name).unlink(missing_ok=True)


def published_shards(work: Work) -> dict[int, tuple[Shard, list[dict[str, Any]]]]:
    """Return the shards of an unfinished store that the remote has, with their rows without a vector."""
    if work.remote is None:
        return {}
    key = work.workspace.key(work.store)
    notes = (work.remote.read(f"{key}/{name}") for name in work.remote.names(key) if name.endswith(_NOTE))
    return {shard.part: (shard, rejected) for shard, rejected in filter(None, map(_read_note, notes))}


def _read_note(data: bytes | None) -> tuple[Shard, list[dict[str, Any]]] | None:
    """Read the note of a published shard; None if it is damaged, so that the shard is made again."""
    try:
        note = json.loads(data or b"")
        return Shard(**note["shard"]), note["rejected"]
    except (ValueError, TypeError, KeyError):
        return None


class Embedders:
    """The teachers of several stores, which embed one shard after another; each is loaded once, on demand."""

    def __init__(self, works: list[Work]) -> None:
        self._works = works
        self._forwards: dict[int, Forward] = {}
        self._teachers: dict[str, Running] = {}

    def __call__(
        self,
        number: int,
        index: int,
        ids: Ids,
        offsets: Offsets,
        progress: Callable[[int], None] | None = None,
    ) -> Shard:
        """Embed the tokens of a store's shard, and write its file; see `Forward` and `write_shard`."""
        work = self._works[number]
        if number not in self._forwards:
            self._forwards[number] = self._forward_of(work)
        began = time.perf_counter()
        empty = {int(row): "the text has no tokens" for row in np.flatnonzero(np.diff(offsets) == 0)}
        vectors_NE = self._forwards[number](ids, offsets, progress)
        return write_shard(work, index, vectors_NE, empty, tokens=len(ids), start=began)

    def _forward_of(self, work: Work) -> Forward:
        if work.threads:
            torch.set_num_threads(work.threads)
        # One teacher serves stores of several prompts and lengths.
        key = fingerprint([work.store.teacher, work.store.compute, work.store.runtime])
        if key not in self._teachers:
            self._teachers[key] = start(work.store, work.workspace, work.device, torch.get_num_threads())
        pad_id = _tokenizer_of(work).pad_id
        return self._teachers[key].forward(work.store, pad_id, work.device, work.batch_tokens)


def _tokenizer_of(work: Work) -> FastTokenizer:
    assert work.tokenizer is not None, "a model is run with its tokenizer"
    return cached_tokenizer(Path(on_this_machine(work.tokenizer).path), work.store.max_length)


def _faults(vectors_NE: Vectors, stored_NE: npt.NDArray[Any]) -> dict[int, str]:
    """Return the reason why a row cannot be stored, by row."""
    finite = np.isfinite(vectors_NE).all(axis=1)
    overflow = finite & ~np.isfinite(stored_NE).all(axis=1)
    faults = {int(row): "the teacher's vector holds NaN or infinity" for row in np.flatnonzero(~finite)}
    for row in np.flatnonzero(overflow):
        faults[int(row)] = f"a value of {np.abs(vectors_NE[row]).max():g} does not fit in {stored_NE.dtype}"
    for row in np.flatnonzero(~stored_NE.any(axis=1)):
        faults[int(row)] = "the teacher's vector has only zeros, and so no direction"
    return faults


def encoded(rows: IntArray, stored_NE: npt.NDArray[Any], tokens: int, dtype: str) -> bytes:
    """Return the bytes of a shard's file."""
    dim = stored_NE.shape[1]
    values = pa.array(np.ascontiguousarray(stored_NE).reshape(-1), ARROW_TYPE[dtype])
    columns = [pa.array(rows, pa.int64()), pa.FixedSizeListArray.from_arrays(values, dim)]
    notes = {"tokens": str(tokens), "sha256": digest_of(rows, stored_NE, tokens)}
    batch = pa.record_batch(columns, schema=schema(dim, dtype, notes))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content
