"""Open a teacher store of 10 000 000 rows, and read random batches from it, against `numpy.memmap`."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Row, arguments, at_least, at_most, finish, in_turn, median, ratio, spread

from stillhouse.core.artifacts import sha256_of, write_json
from stillhouse.teachers.shards import part_name, schema
from stillhouse.teachers.store import StoreReader

SHARD_ROWS = 65_536
BATCH = 256


def write_store(folder: Path, rows: int, dim: int) -> None:
    """A store as the builder leaves it, of random vectors."""
    random = np.random.default_rng(0)
    block = random.standard_normal((SHARD_ROWS, dim), np.float32).astype(np.float16)
    shards: list[dict[str, Any]] = []
    for index, first in enumerate(range(0, rows, SHARD_ROWS)):
        count = min(SHARD_ROWS, rows - first)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(block[:count].reshape(-1)), dim)
        ids = pa.array(np.arange(first, first + count))
        batch = pa.record_batch([ids, vectors], schema=schema(dim, "float16"))
        path = folder / part_name(index)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        size, sha256 = path.stat().st_size, sha256_of(path)
        shards.append(
            {
                "name": path.name,
                "first": first,
                "rows": count,
                "quarantined": 0,
                "bytes": size,
                "sha256": sha256,
            }
        )
    write_json(folder / "quarantine.json", [])
    counts = {"rows": rows, "table_rows": rows, "input_rows": rows, "quarantined": 0, "duplicates": 0}
    write_json(
        folder / "manifest.json",
        {"dim": dim, "dtype": "float16", "shards": shards, "quarantined_vectors": 0, **counts},
    )


def main() -> int:
    """Write the store and the same rows as one plain file; open it, read it."""
    options = arguments(__doc__).parse_args()
    rows, dim = (200_000, 32) if options.quick else (10_000_000, 64)
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        write_store(folder, rows, dim)
        plain = np.lib.format.open_memmap(folder / "plain.npy", "w+", np.float16, (rows, dim))
        store = StoreReader(folder)
        for first in range(0, rows, SHARD_ROWS):
            plain[first : first + SHARD_ROWS] = store.gather(np.arange(first, min(first + SHARD_ROWS, rows)))
        plain.flush()
        mapped = np.load(folder / "plain.npy", mmap_mode="r")
        draws = np.random.default_rng(1).integers(0, rows, (400, BATCH))
        assert np.array_equal(store.gather(draws[0]), mapped[draws[0]].astype(np.float32))
        opened = in_turn({"open": lambda: StoreReader(folder)}, options.repeats)["open"]
        read = in_turn(
            {
                "store": lambda: [store.gather(batch) for batch in draws],
                "memmap": lambda: [mapped[batch].astype(np.float32) for batch in draws],
            },
            options.repeats,
        )
    batches = {name: [len(draws) / second for second in seconds] for name, seconds in read.items()}
    what = f"a store of {rows:,} × {dim}"
    return finish(
        [
            Row(f"opening {what}", "–", **at_most(1000 * median(opened), 50, "ms"), ours=spread(opened)),
            Row(
                f"random batches of {BATCH} from {what}",
                "`numpy.memmap`, to float32",
                **at_least(100 * ratio(read["memmap"], read["store"]), 80, " %"),
                ours=spread(batches["store"], "batches/s"),
                peer=spread(batches["memmap"], "batches/s"),
                note="the same vectors; every shard read and checked once before",
            ),
        ],
        options,
    )


if __name__ == "__main__":
    sys.exit(main())
