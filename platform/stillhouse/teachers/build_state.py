"""The state of a store under construction: its finished shards, and the manifest that completes it."""

import functools
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stillhouse.core.artifacts import (
    MANIFEST,
    manifest_of,
    read_json,
    read_manifest,
    remove_leftovers,
    write_atomically,
    write_json,
)
from stillhouse.core.console import warn
from stillhouse.core.errors import BadInput, blocked
from stillhouse.core.identity import canonical
from stillhouse.core.integrity import moved, put_aside
from stillhouse.core.machine import available_memory, cores
from stillhouse.core.remotes import File, Remote
from stillhouse.teachers.shards import (
    ARROW_TYPE,
    Shard,
    Work,
    digest_of,
    encoded,
    part_name,
    publish_shard,
    published_shards,
    quarantine_name,
    shard_rows,
)
from stillhouse.values.stage import Stage

QUARANTINE = "quarantine.json"
"""The file with a store's rows without a vector, a list of row and reason."""

_COPIES = 5
"""How often a shard is in memory, at most, while it is compared with what its vectors are encoded as."""


class Build:
    """A store under construction. Shards that an earlier run finished stay; partial files are removed."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._table_rows = shard_rows(work.texts_folder)
        self._seconds = 0.0
        work.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(work.folder)
        with ThreadPoolExecutor(_at_once(work.folder)) as pool:
            every = range(len(self._table_rows))
            found = list(pool.map(functools.partial(_found, work), every, self._table_rows))
        self._published = published_shards(work)
        self._shards = {part: shard for part, (shard, _) in self._published.items()}
        self._shards |= {shard.part: shard for shard in found if shard is not None}

    @property
    def total(self) -> int:
        """Rows of the text table."""
        return sum(self._table_rows)

    @property
    def done(self) -> int:
        """Rows that are stored or quarantined."""
        return sum(shard.rows + shard.quarantined for shard in self._shards.values())

    @functools.cached_property
    def size(self) -> int:
        """Bytes of the text table's files, which tell long texts from short ones."""
        return sum(file.stat().st_size for file in self.work.texts_folder.glob("part-*"))

    def missing(self) -> list[int]:
        """List the shards that are still missing."""
        return [index for index in range(len(self._table_rows)) if index not in self._shards]

    def add(self, shard: Shard) -> None:
        """Add a finished shard."""
        self._shards[shard.part] = shard
        self._seconds += shard.seconds

    def finish(self) -> None:
        """Mark the store as finished, in the remote too if there is one.

        Shards that other nodes have written are not here. Where there are such, the store is finished in the
        remote alone, and fetched by whoever reads it.
        """
        shards = [self._shards[index] for index in sorted(self._shards)]
        self._publish_missing(shards)
        made_elsewhere = published_shards(self.work)
        rejected = [
            row
            for shard in shards
            for row in (
                made_elsewhere[shard.part][1]
                if shard.part in made_elsewhere
                else _quarantine(self.work.folder, shard.part)
            )
        ]
        finish(self.work, shards, rejected, self._seconds)

    def _publish_missing(self, shards: list[Shard]) -> None:
        """Publish what an earlier run made here and did not publish."""
        for shard in shards:
            known = self._published.get(shard.part)
            if not shard.seconds and (known is None or known[0].sha256 != shard.sha256):
                publish_shard(self.work, shard, _quarantine(self.work.folder, shard.part))


def finish(work: Work, shards: list[Shard], rejected: list[dict[str, Any]], seconds: float) -> None:
    """Check that every input row is accounted for, and mark the store as finished.

    All shards, and their rows without a vector, are in order. The seconds are the time of the teacher, summed
    over all actors of the last run.
    """
    store, folder, texts = work.store, work.folder, read_manifest(work.texts_folder)
    stored, unread = sum(shard.rows for shard in shards), int(texts["quarantined"])
    accounted = stored + len(rejected) + unread + texts["duplicates"]
    assert len(shards) == len(texts["shards"]) and texts["input_rows"] == accounted, (
        "a row is unaccounted for"
    )
    (dim,) = {shard.dim for shard in shards}
    write_json(folder / QUARANTINE, rejected)
    content = {
        "rows": stored,
        "dim": dim,
        "dtype": store.dtype,
        "compute": store.compute,
        "runtime": store.runtime,
        "table_rows": stored + len(rejected),
        "input_rows": texts["input_rows"],
        "duplicates": texts["duplicates"],
        "quarantined": len(rejected) + unread,
        "quarantined_vectors": len(rejected),
        "teacher": _identity(work),
        "tokens": sum(shard.tokens for shard in shards),
        "seconds": round(seconds, 3),
        "rows_this_run": sum(shard.rows for shard in shards if shard.seconds),
        "shards": _described(work, shards),
        "plan": canonical(store),
    }
    manifest = manifest_of(folder, content)
    if work.remote is not None:
        _complete(work, work.remote, shards, manifest)
    if all((folder / part_name(shard.part)).exists() for shard in shards):
        write_atomically(folder / MANIFEST, manifest)


def _complete(work: Work, remote: Remote, shards: list[Shard], manifest: bytes) -> None:
    """Complete a store of the remote, all shards of which are there."""
    key = work.workspace.key(work.store)
    small = {QUARANTINE: (work.folder / QUARANTINE).read_bytes(), MANIFEST: manifest}
    files = {part_name(shard.part): File(shard.sha256, shard.bytes) for shard in shards}
    for name, data in small.items():
        files[name] = File(hashlib.sha256(data).hexdigest(), len(data))
        remote.write(f"{key}/{files[name].place(name)}", data)
    remote.complete(files, key)


def _described(work: Work, shards: list[Shard]) -> list[dict[str, Any]]:
    starts = np.cumsum([0, *shard_rows(work.texts_folder)])
    return [
        {
            "name": part_name(shard.part),
            "first": int(starts[shard.part]),
            "rows": shard.rows,
            "quarantined": shard.quarantined,
            "bytes": shard.bytes,
            "sha256": shard.sha256,
        }
        for shard in shards
    ]


def _identity(work: Work) -> dict[str, str]:
    teacher = work.store.teacher
    if not isinstance(teacher, Stage):
        return teacher.identity
    weights = read_manifest(work.workspace.path(teacher)).get("weights_sha256", "")
    return {"name": f"{teacher.label}-{teacher.fingerprint}", "sha256": weights}


def _at_once(folder: Path) -> int:
    """Number of shards that are compared at the same time: one per core, if memory allows it."""
    largest = max((path.stat().st_size for path in folder.glob("part-*.arrow")), default=0) or 1
    return max(1, min(cores(), available_memory() // (_COPIES * largest)))


def _found(work: Work, index: int, table_rows: int) -> Shard | None:
    """Find a shard that exists, is undamaged and accounts for every row of its texts; otherwise None."""
    path = work.folder / part_name(index)
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            batch, notes = reader.get_batch(0), reader.schema.metadata
            tokens, embedding = int(notes[b"tokens"]), reader.schema.field("embedding").type
            row, vectors = batch["row"].to_numpy(), batch["embedding"].flatten().to_numpy()
            stored = vectors.reshape(batch.num_rows, -1)
            # Those of older versions do not state it.
            whole = b"sha256" not in notes or notes[b"sha256"].decode() == digest_of(row, stored, tokens)
            content = encoded(row, stored, tokens, work.store.dtype)
    except (FileNotFoundError, pa.ArrowInvalid, ValueError, KeyError, TypeError):
        return None
    except OSError as error:
        raise blocked(path, error) from None
    if not whole:
        warn(f"{path} has changed since it was written. {moved(put_aside(path))} It is made again.")
        return None
    try:
        rows, rejected = batch.num_rows, _quarantine(work.folder, index)
    except BadInput:
        return None
    if rows + len(rejected) != table_rows or embedding.value_type != ARROW_TYPE[work.store.dtype]:
        return None
    if path.read_bytes() != content:
        # What is damaged is not the vectors but what the file has beside them.
        write_atomically(path, content)
    sha256 = hashlib.sha256(content).hexdigest()
    return Shard(index, rows, len(rejected), embedding.list_size, tokens, len(content), sha256)


def _quarantine(folder: Path, index: int) -> list[dict[str, Any]]:
    path = folder / quarantine_name(index)
    return list(read_json(path)) if path.exists() else []
